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
  static constexpr uint32_t kBlockAt = kBlockBytes<kEngine, kN> / 16;  // from a block to the next
  static constexpr uint32_t kSquareStep = kRowBytes / 16 * kSquareEdge;

  struct Progress {
    uint32_t seen = ~0u;  // the last fill of a stage that was awaited
    uint32_t number = 0;  // blocks of the ring consumed
    uint32_t started[2];  // 0 until an accumulator has its first product
  };

  // Where a step finds x and w, in 16 bytes.
  struct Step {
    uint32_t x, w;
  };

  // The products of a step, of each accumulator that has one: parts of x with parts of w, the small
  // ones or the main one. A product waits for the one before it in the same accumulator, longer
  // than it takes itself; those of two accumulators go side by side.
  template <bool kSmall, int kCount>
  __device__ void multiply(float (*acc)[kN / 2], const Step (&step)[kCount],
                           uint32_t* started) const {
    const uint32_t x_high = ptx::matrix_descriptor_64_high(kRowBytes * c.slab_x);
    const uint32_t w_high = ptx::matrix_descriptor_64_high(kRowBytes * 8);
    const uint32_t x_part = kRowBytes / 16 * c.positions;
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
            ptx::wgmma<kN, Operand>(
                acc[j], ptx::matrix_descriptor_64(step[j].x + a * x_part + 2 * k, x_high),
                ptx::matrix_descriptor_64(step[j].w + (sum - a) * kWPart + 2 * k, w_high),
                started[j]);
            started[j] = 1;
          }
        }
      }
    }
  }

  // Waits for a fill; numbers only go up. The phase of a barrier is told from the next one alone,
  // so that who is more than a round of the stages ahead of what it has seen must learn otherwise
  // that the fill before in the same stage is over: this one was begun then. That happens where
  // runs are short.
  __device__ void await_fill(uint32_t number, const Fill& fill, Progress& progress) const {
    if (number - progress.seen > static_cast<uint32_t>(c.stages)) {
      const auto begun = [&] { return ptx::atomic_load_acquire(&shared.begun) - number - 1; };
      while (__any_sync(~0u, static_cast<int32_t>(begun()) < 0)) {
      }
    }
    wait(&shared.full[fill.stage], fill.parity);
    progress.seen = number;
  }

  // Waits for a tile's slabs and starts its products by weights that stay, committed and not
  // awaited. Small products come first over the whole of K, so that rounding towards zero meets few
  // large sums. square: of the tile; first: the first fill of its window.
  __device__ void multiply_window(Accumulators& acc, const Band& band, int square, uint32_t first,
                                  Progress& progress) const {
    const Fill first_fill = fill_of(first);
    for (int i = 0; i < c.window * p.chunks; ++i) {
      await_fill(first + i, fill_after(first_fill, i), progress);
    }
    const auto for_each_slab = [&](const auto& body) {
      uint32_t w = (ptx::shared_address(shared.dynamic) >> 4) + band.first_block * kBlockAt;
      for (int chunk = 0; chunk < p.chunks; ++chunk) {
        for (int plane = 0; plane < c.planes; ++plane, w += band.blocks() * kBlockAt) {
          const Fill fill = fill_after(first_fill, c.plane_of[plane] * p.chunks + chunk);
          body((stage_at(fill.stage) >> 4) + square * kSquareStep, w);
        }
      }
    };
    ptx::wgmma_fence();
    if constexpr (kPassesOf<kEngine> == 2) {
      for_each_slab(
          [&](uint32_t x, uint32_t w) { multiply_slab<true>(acc, band, x, w, progress); });
      if constexpr (kScales<kEngine>) {
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
#pragma unroll
        for (auto& row : acc) {
#pragma unroll
          for (float& sum : row) sum *= 1 / kLowScale;
        }
        ptx::wgmma_fence();
      }
    }
    for_each_slab([&](uint32_t x, uint32_t w) {
      if constexpr (kParts == 1) multiply_both(acc, band, x, w, progress);
      multiply_slab<false>(acc, band, x, w, progress);
    });
    ptx::wgmma_commit();
  }

  // The steps of a slab that are of both accumulators.
  __device__ void multiply_both(Accumulators& acc, const Band& band, uint32_t x, uint32_t w,
                                Progress& progress) const {
#pragma unroll 1
    for (int i = 0; i < band.steps[kBoth]; ++i, w += 2 * kBlockAt) {
      const uint32_t at = x + band.step_at[kBoth][i];
      const Step steps[2] = {{at, w}, {at, w + kBlockAt}};
      multiply<false, 2>(acc, steps, progress.started);
    }
  }

  // The steps of a slab that are of one accumulator, side by side as far as both have some.
  template <bool kSmall>
  __device__ void multiply_slab(Accumulators& acc, const Band& band, uint32_t x, uint32_t w,
                                Progress& progress) const {
    w += 2 * band.steps[kBoth] * kBlockAt;
    Step at[2] = {{x, w}, {x, w + band.steps[kFirst] * kBlockAt}};
    const auto go_to = [&](int j, int i) { at[j].x = x + band.step_at[kFirst + j][i]; };
    const int side_by_side = min(band.steps[kFirst], band.steps[kSecond]);
    int i = 0;
#pragma unroll 1
    for (; i < side_by_side; ++i, at[0].w += kBlockAt, at[1].w += kBlockAt) {
      go_to(0, i);
      go_to(1, i);
      multiply<kSmall, 2>(acc, at, progress.started);
    }
    const auto rest = [&]<int kJ>() {
#pragma unroll 1
      for (; i < band.steps[kFirst + kJ]; ++i, at[kJ].w += kBlockAt) {
        go_to(kJ, i);
        const Step one[1] = {at[kJ]};
        multiply<kSmall, 1>(&acc[kJ], one, &progress.started[kJ]);
      }
    };
    rest.template operator()<1>();
    rest.template operator()<0>();
  }

  // Gives the slabs of tile i of tiles back to the loader, a lane a plane. Each plane of a run is
  // awaited as often as there are planes in a window; those near its ends have fewer tiles, and the
  // first and the last tile stand in for what is missing.
  __device__ void release_window(uint32_t first, int i, int tiles, int lane) const {
    static_assert(kMaxPlanes * 2 <= 32);  // planes of a window: dilation to 2
    const Fill first_fill = fill_of(first);
    const uint32_t count = 1 + (i == 0 ? c.window - 1 - lane : 0) + (i == tiles - 1 ? lane : 0);
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      const Fill fill = fill_after(first_fill, lane * p.chunks + chunk);
      ptx::mbarrier_arrive_if(lane < c.window, &shared.empty[fill.stage], count);
    }
  }

  // A tile's products where weights go through the ring: slab by slab, all of them once a pass.
  __device__ void multiply_by_ring(Accumulators& acc, int w, uint32_t ordinal,
                                   Progress& progress) const {
    constexpr int kPasses = kPassesOf<kEngine>;
    const int slabs = p.chunks * c.planes;
    const int fills = slabs * kPasses;
    for (int i = 0; i < fills; ++i) {
      const uint32_t number = (ordinal * fills + i) * kConsumers + w;
      const Fill fill = fill_of(number);
      await_fill(number, fill, progress);
      const uint32_t stage = fill.stage;
      if (kPasses == 2 && i < slabs) {
        multiply_slab_by_ring<kPasses == 2>(acc, stage_at(stage), progress);
      } else {
        multiply_slab_by_ring<false>(acc, stage_at(stage), progress);
      }
      if (lane() == 0) ptx::mbarrier_arrive(&shared.empty[stage]);
    }
  }

  template <bool kSmall>
  __device__ void multiply_slab_by_ring(Accumulators& acc, uint32_t x_at,
                                        Progress& progress) const {
    const uint32_t weights = ptx::shared_address(shared.dynamic);
    const Band& only = band(0);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      for (int step = 0; step < only.steps[kFirst + j]; ++step, ++progress.number) {
        const uint32_t slot = progress.number % kSlots;
        wait(&shared.slot_full[slot], progress.number / kSlots & 1);
        ptx::wgmma_fence();
        const Step at[1] = {
            {(x_at >> 4) + only.step_at[kFirst + j][step], (weights >> 4) + slot * kBlockAt}};
        multiply<kSmall>(&acc[j], at, &progress.started[j]);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        if (lane() == 0) ptx::mbarrier_arrive(&shared.slot_empty[slot]);
      }
    }
  }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_PRODUCTS_CUH_
