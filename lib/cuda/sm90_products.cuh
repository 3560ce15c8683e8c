// SPDX-License-Identifier: Apache-2.0
//
// The products of "cuda/sm90": a warpgroup's tile by wgmma from the stages and weights that loaders
// fill, into accumulators in registers. No conversion and no epilogue.
#ifndef VOLUP_CUDA_SM90_PRODUCTS_CUH_
#define VOLUP_CUDA_SM90_PRODUCTS_CUH_

#include "cuda/ptx.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"

namespace volup::sm90 {

template <Engine kEngine, int kN>
struct Products : Block {
  using Block::Block;
  static constexpr int kParts = kPartsOf<kEngine>;
  using Operand = OperandOf<kEngine>;
  using Accumulators = float[2][kN / 2];

  struct Progress {
    uint32_t number = 0;  // weight blocks consumed
    uint32_t started[2];  // 0 until an accumulator has its first product
  };

  // The products of a step: a part of x with one of w, the small ones or the main one. x_at and
  // w_at: addresses in 16 bytes.
  template <bool kSmall>
  __device__ void multiply_step(float (&acc)[kN / 2], uint32_t x_at, uint32_t w_at,
                                uint32_t& started) const {
    const uint64_t x_rows = ptx::matrix_descriptor_64(0, kRowBytes * c.slab_x);
    const uint64_t w_rows = ptx::matrix_descriptor_64(0, kRowBytes * 8);
    const uint32_t x_part = kRowBytes / 16 * work.positions;
    constexpr uint32_t kWPart = kRowBytes / 16 * kN;
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
#pragma unroll
      for (int sum = kParts - 1; sum >= 0; --sum) {
        if (kSmall != (sum > 0)) continue;
#pragma unroll
        for (int a = 0; a <= sum; ++a) {
          ptx::wgmma<kN, Operand>(acc, x_rows | (x_at + a * x_part + 2 * k),
                                  w_rows | (w_at + (sum - a) * kWPart + 2 * k), started);
          started = 1;
        }
      }
    }
  }

  // One pass over a whole tile with resident weights. Small products come first over the whole of
  // K, so that rounding towards zero meets few large sums.
  template <bool kSmall>
  __device__ void multiply_tile(Accumulators& acc, uint32_t stage, Progress& progress) const {
    const uint32_t weights = ptx::shared_address(shared.dynamic);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int count = work.slabs * c.steps[j];
      const uint2* step = &shared.steps[j == 0 ? 0 : work.slabs * c.steps[0]];
#pragma unroll 2
      for (int i = 0; i < count; ++i) {
        const uint2 s = step[i];
        multiply_step<kSmall>(acc[j], (stage >> 4) + s.x, (weights >> 4) + s.y,
                              progress.started[j]);
      }
    }
  }

  // One pass over slabs [first, last), whose first one lies at stage; weights may come by the ring.
  template <bool kSmall>
  __device__ void multiply_slabs(Accumulators& acc, int first, int last, uint32_t stage,
                                 Progress& progress) const {
    const uint32_t weights = ptx::shared_address(shared.dynamic);
    for (int slab = first; slab < last; ++slab) {
      uint32_t block = slab * (c.steps[0] + c.steps[1]);
      const uint32_t slab_at = stage + (slab - first) * work.slab_bytes;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        for (int step = 0; step < c.steps[j]; ++step, ++block) {
          const uint32_t slot = c.resident ? block : progress.number % kSlots;
          if (!c.resident) wait(&shared.slot_full[slot], progress.number / kSlots & 1);
          ptx::wgmma_fence();
          multiply_step<kSmall>(acc[j], (slab_at + kRowBytes * c.step_offset[j][step]) >> 4,
                                (weights + slot * work.block_bytes) >> 4, progress.started[j]);
          ptx::wgmma_commit();
          ptx::wgmma_wait<0>();
          if (!c.resident && threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.slot_empty[slot]);
          ++progress.number;
        }
      }
    }
  }

  // The number of a fill: of warpgroup w's tile of this ordinal. Worked out wherever it is needed,
  // as registers are dearer here than arithmetic.
  __device__ uint32_t number_of(uint32_t ordinal, int fill, int w) const {
    return (ordinal * work.fills + fill) * kConsumers + w;
  }

  // Address of the stage of a fill, once it is full.
  __device__ uint32_t await_stage(uint32_t ordinal, int fill, int w) const {
    wait(&shared.full[stage_of(number_of(ordinal, fill, w))],
         parity_of(number_of(ordinal, fill, w)));
    return ptx::shared_address(stage_at(stage_of(number_of(ordinal, fill, w))));
  }

  // Gives the stage of a fill back to the loader.
  __device__ void release_stage(uint32_t ordinal, int fill, int w, int lane) const {
    if (lane == 0) {
      ptx::mbarrier_arrive(&shared.empty[stage_of(number_of(ordinal, fill, w))]);
    }
  }

  // A tile that lies in one stage, by resident weights; committed, not awaited. Warpgroups take
  // turns: one has the tensor cores to itself while the other finishes.
  __device__ void multiply_in_turn(Accumulators& acc, int w, uint32_t ordinal, int lane,
                                   Progress& progress) const {
    if (w > 0 || ordinal > 0) wait(&shared.turn[w], (w > 0 ? ordinal : ordinal - 1) & 1);
    const uint32_t stage = await_stage(ordinal, 0, w);
    ptx::wgmma_fence();
    if constexpr (kPassesOf<kEngine> == 2) multiply_tile<true>(acc, stage, progress);
    multiply_tile<false>(acc, stage, progress);
    ptx::wgmma_commit();
    if (lane == 0) ptx::mbarrier_arrive(&shared.turn[(w + 1) % kConsumers]);
  }

  // Any tile, fill by fill. One that is staged slab by slab is staged once a pass.
  __device__ void multiply_by_fills(Accumulators& acc, int w, uint32_t ordinal, int lane,
                                    Progress& progress) const {
    constexpr int kPasses = kPassesOf<kEngine>;
    for (int fill = 0; fill < work.fills; ++fill) {
      const uint32_t stage = await_stage(ordinal, fill, w);
      for (int pass = 0; pass < (c.whole ? kPasses : 1); ++pass) {
        const bool small = c.whole ? pass + 1 < kPasses : fill < work.fills / kPasses;
        const int first = c.whole ? 0 : fill % work.slabs;
        const int last = c.whole ? work.slabs : first + 1;
        if (kPasses == 2 && small) {
          multiply_slabs<kPasses == 2>(acc, first, last, stage, progress);
        } else {
          multiply_slabs<false>(acc, first, last, stage, progress);
        }
      }
      release_stage(ordinal, fill, w, lane);
    }
  }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_PRODUCTS_CUH_
