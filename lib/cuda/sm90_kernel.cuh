// SPDX-License-Identifier: Apache-2.0
//
// The fused kernel of "cuda/sm90": transposed convolution by wgmma and the epilogue behind it, one
// persistent block a multiprocessor. A block serves one class of outputs (sm90_layout.h), whose
// weights stay in shared memory where they fit. Its roles run side by side:
//   load     a warpgroup: weights, once or through a ring; slabs of x, split into parts, to stages
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

  __device__ Consumer(const Parameters& parameters, Shared& s, const Share& serves)
      : Block(parameters, s, serves),
        products(parameters, s, serves),
        epilogue(parameters, s, serves) {}

  // Where weights stay: the block's tiles one by one, the warpgroups in turn.
  __device__ void march(int w) const {
    Progress progress;
    wait(&shared.slot_full[0], 0);
    int z = 0, band = 0;  // in the run
    const auto go_on = [&](int tiles) {
      for (band += tiles; band >= c.bands; band -= c.bands) ++z;
    };
    go_on(w);
    uint32_t first_fill = 0;
    for (Run run(*this); run.exists();) {
      if (z >= run.tiles) {
        z -= run.tiles;
        first_fill += run.planes() * p.chunks;
        run.next();
        continue;
      }
      const uint32_t first = first_fill + z * p.chunks;
      compute_tile(
          run.tile(z, band), true,
          [&](auto& acc) { products.multiply_window(acc, this->band(band), first, progress); },
          [&](int lane) { products.release_window(first, z, run.tiles, lane); }, progress);
      go_on(kConsumers);
    }
  }

  // Where weights go through the ring.
  __device__ void follow_ring(int w) const {
    Progress progress;
    uint32_t ordinal = 0;
    for (uint32_t group = share.rank; group < groups(); group += share.ranks, ++ordinal) {
      const uint32_t index = group * kConsumers + w;
      compute_tile(
          tile_at(index), index < c.tiles,
          [&](auto& acc) { products.multiply_by_ring(acc, w, ordinal, progress); }, [](int) {},
          progress);
    }
  }

  __device__ void consume(int w) const {
    ptx::grid_dependency_wait();
    if (c.resident) {
      march(w);
    } else {
      follow_ring(w);
    }
  }

  // multiply starts the products; release follows when they are done.
  template <typename Multiply, typename Release>
  __device__ void compute_tile(const Tile& tile, bool exists, const Multiply& multiply,
                               const Release& release, Progress& progress) const {
    float acc[2][kN / 2];
    progress.started[0] = progress.started[1] = 0;
    multiply(acc);
    const auto own = epilogue.own();
    const auto outputs = epilogue.locate(own, tile, exists);
    bool finite;
    if (outputs.whole) {
      typename Epilogue::Added added;
      if constexpr (Epilogue::kAdds) epilogue.load_first_groups(outputs, added);
      ptx::wgmma_wait<0>();
      release(own.lane);
      finite = epilogue.template finish<true>(acc, own, added, outputs, {});
    } else {
      ptx::wgmma_wait<0>();
      release(own.lane);
      typename Epilogue::Added none;
      finite = epilogue.template finish<false>(acc, own, none, outputs,
                                               epilogue.edges(own, tile, exists));
    }
    if (__any_sync(~0u, !finite && exists)) {
      // Orders the warp's stores before those of exact_rows.
      __syncwarp();
      exact_rows_apart<kEngine, kKind, Io, kN>(p, shared, share, tile);
    }
  }
};

template <Engine kEngine, EpilogueKind kKind, typename Io, int kN>
__global__ void __launch_bounds__(kThreads, 1) fused_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  prepare<kN>(p, shared, find_share(p), kBiasScale<kKind>);
  __syncthreads();
  ptx::grid_launch_dependents();

  // The role must be the same for the whole warpgroup as the compiler sees it.
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (warpgroup < kConsumers) {
    ptx::registers_increase<144>();
    const Consumer<kEngine, kKind, Io, kN> consumer(p, shared, find_share(p));
    consumer.consume(warpgroup);
  } else {
    ptx::registers_decrease<80>();
    const BulkLoader<kEngine, Io, kN> loader(p, shared, find_share(p));
    const int rank = static_cast<int>(ptx::thread_index()) - kConsumers * 128;
    const bool resident = loader.c.resident;
    const bool bulk = resident && p.bulk;
    if (bulk) {
      if (rank == 0) loader.load_resident_weights();
      loader.bring_x(rank);
    } else if (rank < kLoaders) {
      loader.load_x(rank);
    } else if (rank == kLoaders) {
      if (resident) {
        loader.load_resident_weights();
      } else {
        loader.load_weights_by_ring();
      }
    }
  }
}

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_KERNEL_CUH_
