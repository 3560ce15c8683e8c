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
    uint32_t number = 0;  // blocks of the ring consumed
    uint32_t started[2];  // 0 until an accumulator has its first product
  };

  // How a slab lies in shared memory.
  struct XLayout {
    uint64_t rows;  // descriptor of a matrix at address 0
    uint32_t part;  // from one part to the next, in 16 bytes
  };
  __device__ XLayout x_layout() const {
    return {ptx::matrix_descriptor_64(0, kRowBytes * c.slab_x),
            kRowBytes / 16 * static_cast<uint32_t>(work.positions)};
  }

  // Where a step finds x and w, in 16 bytes.
  struct Step {
    uint32_t x, w;
  };

  // The products of a step, of each accumulator that has one: parts of x with parts of w, the small
  // ones or the main one. A product waits for the one before it in the same accumulator, longer
  // than it takes itself; those of two accumulators go side by side.
  template <bool kSmall, int kCount>
  __device__ static void multiply(float (*acc)[kN / 2], const Step (&step)[kCount],
                                  const XLayout& x, uint32_t* started) {
    const uint64_t w_rows = ptx::matrix_descriptor_64(0, kRowBytes * 8);
    constexpr uint32_t kWPart = kRowBytes / 16 * kN;
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
#pragma unroll
      for (int sum = kParts - 1; sum >= 0; --sum) {
        if (kSmall != (sum > 0)) continue;
#pragma unroll
        for (int a = 0; a <= sum; ++a) {
#pragma unroll
          for (int j = 0; j < kCount; ++j) {
            ptx::wgmma<kN, Operand>(acc[j], x.rows | (step[j].x + a * x.part + 2 * k),
                                    w_rows | (step[j].w + (sum - a) * kWPart + 2 * k), started[j]);
            started[j] = 1;
          }
        }
      }
    }
  }

  // Waits for fills [first, first + count). The phase of a barrier is told from the next one alone:
  // who came early by a round of the stages would take an older fill for its own. Once the last of
  // the fills was begun, what its stage and those before it held is gone.
  __device__ void await_fills(uint32_t first, int count) const {
    while (static_cast<int32_t>(ptx::load_acquire(&shared.begun) - (first + count)) < 0) {
    }
    for (int i = 0; i < count; ++i) {
      const Fill fill = fill_of(first + i);
      wait(&shared.full[fill.stage], fill.parity);
    }
  }

  // Of accumulator j, a lane a step: the given one and those after it. first: the first fill of the
  // tile's window.
  __device__ Step places(int j, int from, int count, uint32_t first, int lane) const {
    const int step = min(from + lane, count - 1) + (j == 0 ? 0 : work.slabs * c.steps[0]);
    const uint2 entry = shared.steps[step];
    const uint32_t stage = fill_of(first + (entry.x >> 16)).stage;
    return {(stage_at(stage) >> 4) + (entry.x & 0xFFFF),
            (ptx::shared_address(shared.dynamic) >> 4) + entry.y};
  }
  __device__ static Step of_lane(const Step& places, int lane) {
    return {__shfl_sync(~0u, places.x, lane), __shfl_sync(~0u, places.w, lane)};
  }

  // Steps [from, to) of kCount accumulators, 32 at most. A step is brought out of its lane two
  // steps ahead: while the tensor cores read shared memory, all else that passes through it is
  // slow.
  template <bool kSmall, int kCount>
  __device__ static void multiply_steps(float (*acc)[kN / 2], const Step* places, int from, int to,
                                        const XLayout& layout, uint32_t* started) {
    constexpr int kAhead = 2;
    Step coming[kAhead][kCount];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) coming[a][j] = of_lane(places[j], from + a);
    }
#pragma unroll 1
    for (int i = from; i < to; ++i) {
      Step now[kCount];
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        now[j] = coming[0][j];
        coming[0][j] = coming[1][j];
        coming[1][j] = of_lane(places[j], i + kAhead);
      }
      multiply<kSmall>(acc, now, layout, started);
    }
  }

  // Waits for a tile's slabs and starts its products by weights that stay, committed and not
  // awaited. Small products come first over the whole of K, so that rounding towards zero meets few
  // large sums.
  __device__ void multiply_window(Accumulators& acc, uint32_t first, int lane,
                                  Progress& progress) const {
    const int count[2] = {work.slabs * c.steps[0], work.slabs * c.steps[1]};
    const int both = min(count[0], count[1]), all = max(count[0], count[1]);
    const int longer = count[1] > count[0];
    const XLayout layout = x_layout();
    Step at[2] = {places(0, 0, count[0], first, lane), places(1, 0, count[1], first, lane)};
    await_fills(first, c.window * p.chunks);
    ptx::wgmma_fence();
    const auto pass = [&]<bool kSmall>() {
      for (int from = 0; from < all; from += 32) {
        if (all > 32) {
          at[0] = places(0, from, count[0], first, lane);
          at[1] = places(1, from, count[1], first, lane);
        }
        const int shared_to = max(0, min(both - from, 32)), to = min(all - from, 32);
        multiply_steps<kSmall, 2>(acc, at, 0, shared_to, layout, progress.started);
        if (longer) {
          multiply_steps<kSmall, 1>(&acc[1], &at[1], shared_to, to, layout, &progress.started[1]);
        } else {
          multiply_steps<kSmall, 1>(&acc[0], &at[0], shared_to, to, layout, &progress.started[0]);
        }
      }
    };
    if constexpr (kPassesOf<kEngine> == 2) pass.template operator()<true>();
    pass.template operator()<false>();
    ptx::wgmma_commit();
  }

  // Gives the slabs of tile i of tiles back to the loader. Each plane of a unit is awaited as often
  // as there are planes in a window; those near its ends have fewer tiles, and the first and the
  // last tile stand in for what is missing.
  __device__ void release_window(uint32_t first, int i, int tiles, int lane) const {
    if (lane != 0) return;
    for (int plane = 0; plane < c.window; ++plane) {
      const uint32_t count = 1 + (i == 0 ? c.window - 1 - plane : 0) + (i == tiles - 1 ? plane : 0);
      for (int chunk = 0; chunk < p.chunks; ++chunk) {
        ptx::mbarrier_arrive(&shared.empty[fill_of(first + plane * p.chunks + chunk).stage], count);
      }
    }
  }

  // A tile's products where weights go through the ring: slab by slab, all of them once a pass.
  __device__ void multiply_by_ring(Accumulators& acc, int w, uint32_t ordinal, int lane,
                                   Progress& progress) const {
    constexpr int kPasses = kPassesOf<kEngine>;
    const int fills = work.slabs * kPasses;
    for (int i = 0; i < fills; ++i) {
      const uint32_t number = (ordinal * fills + i) * kConsumers + w;
      const Fill fill = fill_of(number);
      await_fills(number, 1);
      if (kPasses == 2 && i < work.slabs) {
        multiply_slab<kPasses == 2>(acc, stage_at(fill.stage), lane, progress);
      } else {
        multiply_slab<false>(acc, stage_at(fill.stage), lane, progress);
      }
      if (lane == 0) ptx::mbarrier_arrive(&shared.empty[fill.stage]);
    }
  }

  template <bool kSmall>
  __device__ void multiply_slab(Accumulators& acc, uint32_t x_at, int lane,
                                Progress& progress) const {
    const uint32_t weights = ptx::shared_address(shared.dynamic);
    const XLayout layout = x_layout();
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      for (int step = 0; step < c.steps[j]; ++step, ++progress.number) {
        const uint32_t slot = progress.number % kSlots;
        wait(&shared.slot_full[slot], progress.number / kSlots & 1);
        ptx::wgmma_fence();
        const Step at[1] = {{(x_at + kRowBytes * c.step_offset[j][step]) >> 4,
                             (weights + slot * work.block_bytes) >> 4}};
        multiply<kSmall>(&acc[j], at, layout, &progress.started[j]);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        if (lane == 0) ptx::mbarrier_arrive(&shared.slot_empty[slot]);
      }
    }
  }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_PRODUCTS_CUH_
