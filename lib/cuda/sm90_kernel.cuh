// SPDX-License-Identifier: Apache-2.0
//
// The fused kernel of "cuda/sm90": transposed convolution by wgmma and the epilogue behind it, one
// persistent block a multiprocessor. A block serves one class of outputs (sm90_layout.h), whose
// weights stay in shared memory where they fit. Its roles run side by side:
//   copies   one thread: bulk copies of weights, once or through a ring, and of x where they can
//   load_x   three warps: slabs of x, split into parts, to a stage; they copy what bulk copies
//            cannot
//   consume  three warpgroups, a tile each: products, then epilogue and stores
// A tile with an accumulator that is not finite is computed once more by plain FMA. This file holds
// the kernel and the order of things; how they are done: sm90_setup.cuh, sm90_loader.cuh,
// sm90_bulk_loader.cuh, sm90_products.cuh, sm90_finish.cuh, sm90_exact.cuh.
#ifndef VOLUP_CUDA_SM90_KERNEL_CUH_
#define VOLUP_CUDA_SM90_KERNEL_CUH_

#include "cuda/ptx.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_bulk_loader.cuh"
#include "cuda/sm90_exact.cuh"
#include "cuda/sm90_finish.cuh"
#include "cuda/sm90_layout.h"
#include "cuda/sm90_loader.cuh"
#include "cuda/sm90_products.cuh"
#include "cuda/sm90_setup.cuh"

namespace volup::sm90 {

// A warpgroup's role: tile after tile, from stages to outputs.
template <Engine kEngine, EpilogueKind kKind, typename Io, int kN>
struct Consumer : Block {
  const Products<kEngine, kN> products;
  using Epilogue = Finish<kKind, Io, kN>;
  const Epilogue epilogue;
  using Progress = typename Products<kEngine, kN>::Progress;

  __device__ Consumer(const Parameters& parameters, Shared& s)
      : Block(parameters, s), products(parameters, s), epilogue(parameters, s) {}

  // Where weights stay: the block's units tile by tile along z, the warpgroups in turn.
  __device__ void march(int w, int thread) const {
    Progress progress;
    wait(&shared.slot_full[0], 0);
    Digits unit(work, work.rank);
    int i = w;
    uint32_t first_fill = 0;
    for (uint32_t index = work.rank; index < work.units;) {
      const int tiles = tiles_of(unit);
      if (i >= tiles) {
        i -= tiles;
        first_fill += planes_of(unit) * p.chunks;
        index += work.ranks;
        unit.add(work, shared.to_next_unit);
        continue;
      }
      const Tile tile = tile_of(unit, i);
      const uint32_t first = first_fill + i * p.chunks;
      compute_tile(
          w, thread, tile, true,
          [&](auto& acc) { products.multiply_window(acc, first, thread % 32, progress); },
          [&] { products.release_window(first, i, tiles, thread % 32); }, progress);
      i += kConsumers;
    }
  }

  // Where weights go through the ring.
  __device__ void follow_ring(int w, int thread) const {
    Progress progress;
    uint32_t ordinal = 0;
    for (uint32_t group = work.rank; group < groups(); group += work.ranks, ++ordinal) {
      const uint32_t index = group * kConsumers + w;
      const Tile tile = tile_of(Digits(work, index), 0);
      compute_tile(
          w, thread, tile, index < work.units,
          [&](auto& acc) { products.multiply_by_ring(acc, w, ordinal, thread % 32, progress); },
          [] {}, progress);
    }
  }

  __device__ void consume(int w, int thread) const {
    ptx::grid_dependency_wait();
    if (c.resident) {
      march(w, thread);
    } else {
      follow_ring(w, thread);
    }
  }

  // multiply starts the products; release follows when they are done.
  template <typename Multiply, typename Release>
  __device__ void compute_tile(int w, int thread, const Tile& tile, bool exists,
                               const Multiply& multiply, const Release& release,
                               Progress& progress) const {
    const int warp = thread / 32;
    const int lane = thread % 32;
    float acc[2][kN / 2];
    progress.started[0] = progress.started[1] = 0;
    multiply(acc);
    // This passes while the tensor cores work.
    const auto outputs = epilogue.locate(tile, exists, warp, lane);
    typename Epilogue::Added added;
    if constexpr (Epilogue::kAdds) {
      if (outputs.whole) epilogue.load_first_groups(outputs, added);
    }
    ptx::wgmma_wait<0>();
    release();
    const bool finite =
        outputs.whole ? epilogue.template finish<true>(acc, added, outputs, {}, lane)
                      : epilogue.template finish<false>(
                            acc, added, outputs, epilogue.edges(tile, exists, warp, lane), lane);
    if (__any_sync(~0u, !finite && exists)) {
      // Orders the warp's stores before those of exact_rows.
      __syncwarp();
      exact_rows_apart<kEngine, kKind, Io, kN>(p, shared, tile, warp, lane);
    }
  }
};

template <Engine kEngine, EpilogueKind kKind, typename Io, int kN>
__global__ void __launch_bounds__(kThreads, 1) fused_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  take_class<kEngine, kN>(p, shared);
  __syncthreads();
  ptx::grid_launch_dependents();
  if (shared.now.resident) list_steps(p, shared);
  list_distance(shared);
  __syncthreads();

  // The role must be the same for the whole warpgroup as the compiler sees it.
  const int thread = threadIdx.x;
  const int warpgroup = __shfl_sync(~0u, thread / 128, 0);
  if (warpgroup < kConsumers) {
    ptx::registers_increase<152>();
    const Consumer<kEngine, kKind, Io, kN> consumer(p, shared);
    consumer.consume(warpgroup, thread % 128);
  } else {
    ptx::registers_decrease<56>();
    const BulkLoader<kEngine, Io> loader(p, shared);
    const int rank = thread - kConsumers * 128;
    const bool bulk = shared.now.resident && p.bulk;
    if (rank < kLoaders) {
      if (bulk) {
        loader.split_raw(rank);
      } else {
        loader.load_x(rank);
      }
    } else if (rank == kLoaders) {
      if (shared.now.resident) {
        loader.load_resident_weights();
      } else {
        loader.load_weights_by_ring();
      }
      if (bulk) loader.copy_raw();
    }
  }
}

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_KERNEL_CUH_
