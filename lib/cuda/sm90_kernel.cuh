// SPDX-License-Identifier: Apache-2.0
//
// The fused kernel of "cuda/sm90": transposed convolution by wgmma and the epilogue behind it, one
// persistent block a multiprocessor. A block serves one class of outputs (sm90_layout.h), whose
// weights stay in shared memory where they fit. Its roles run side by side:
//   load_weights  one thread: bulk copies, once or through a ring
//   load_x        seven warps: channels of a position gathered, split into parts, to a stage
//   consume       two warpgroups, a tile each: products, then epilogue and stores; with resident
//                 weights one multiplies while the other finishes
// A tile with an accumulator that is not finite is computed once more by plain FMA. This file holds
// the kernel and the order of things; how they are done: sm90_setup.cuh, sm90_loader.cuh,
// sm90_products.cuh, sm90_finish.cuh, sm90_exact.cuh.
#ifndef VOLUP_CUDA_SM90_KERNEL_CUH_
#define VOLUP_CUDA_SM90_KERNEL_CUH_

#include "cuda/ptx.h"
#include "cuda/sm90_block.cuh"
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
  const Finish<kKind, Io, kN> epilogue;
  using Progress = typename Products<kEngine, kN>::Progress;

  __device__ Consumer(const Parameters& parameters, Shared& s)
      : Block(parameters, s), products(parameters, s), epilogue(parameters, s) {}

  __device__ void consume(int w, int thread) const {
    Progress progress;
    if (c.resident) wait(&shared.slot_full[0], 0);
    ptx::grid_dependency_wait();
    Digits digits(work, work.rank * kConsumers + w);
    uint32_t ordinal = 0;
    for (uint32_t group = work.rank; group < groups(); group += work.ranks, ++ordinal) {
      const uint32_t index = group * kConsumers + w;
      const bool exists = index < work.tiles;
      if (!exists && c.resident) break;
      consume_tile(w, thread, ordinal, exists, Tile(p, digits), progress);
      digits.add(work, shared.to_next_own);
      // Orders the stores of the warpgroup before those of exact_tile.
      ptx::named_barrier_sync(1 + w, 128);
      if (shared.not_finite[w] != 0) {
        exact_tile_apart<kEngine, kKind, Io, kN>(p, shared, index, thread);
        ptx::named_barrier_sync(1 + w, 128);
        if (thread == 0) shared.not_finite[w] = 0;
        ptx::named_barrier_sync(1 + w, 128);
      }
    }
  }

  __device__ void consume_tile(int w, int thread, uint32_t ordinal, bool exists, const Tile& tile,
                               Progress& progress) const {
    const int lane = thread % 32;
    const auto outputs = epilogue.locate(tile, exists, thread / 32, lane);
    float acc[2][kN / 2];
    typename Finish<kKind, Io, kN>::Added added;
    progress.started[0] = progress.started[1] = 0;
    const bool in_turn = c.whole && c.resident;
    if (in_turn) {
      products.multiply_in_turn(acc, w, ordinal, lane, progress);
    } else {
      products.multiply_by_fills(acc, w, ordinal, lane, progress);
    }
    // These loads pass while the tensor cores work.
    if constexpr (Finish<kKind, Io, kN>::kAdds) {
      if (outputs.whole) epilogue.load_first_groups(outputs, added);
    }
    ptx::wgmma_wait<0>();
    if (in_turn) products.release_stage(ordinal, 0, w, lane);
    const bool finite = outputs.whole ? epilogue.template finish<true>(acc, added, outputs, lane)
                                      : epilogue.template finish<false>(acc, added, outputs, lane);
    if (!finite && exists) shared.not_finite[w] = 1;
  }
};

template <Engine kEngine, EpilogueKind kKind, typename Io, int kN>
__global__ void __launch_bounds__(kThreads, 1) fused_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  take_class<kEngine, kN>(p, shared);
  __syncthreads();
  ptx::grid_launch_dependents();
  if (shared.now.whole && shared.now.resident) list_steps(shared);
  list_distances(shared);
  __syncthreads();

  // The role must be the same for the whole warpgroup as the compiler sees it.
  const int thread = threadIdx.x;
  const int warpgroup = __shfl_sync(~0u, thread / 128, 0);
  if (warpgroup < kConsumers) {
    ptx::registers_increase<176>();
    const Consumer<kEngine, kKind, Io, kN> consumer(p, shared);
    consumer.consume(warpgroup, thread % 128);
  } else {
    ptx::registers_decrease<80>();
    const Loader<kEngine, Io> loader(p, shared);
    const int rank = thread - kConsumers * 128;
    if (rank < kLoaders) {
      loader.load_x(rank);
    } else if (rank == kLoaders) {
      loader.load_weights();
    }
  }
}

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_KERNEL_CUH_
