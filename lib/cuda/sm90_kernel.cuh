// SPDX-License-Identifier: Apache-2.0
//
// The fused kernel of "cuda/sm90": transposed convolution by wgmma and the epilogue behind it, one
// persistent block a multiprocessor. A block serves one class of outputs (sm90_layout.h), whose
// weights stay in shared memory where they fit. Its roles run side by side:
//   load     a warpgroup: weights, once or through a ring; slabs of x, split into parts, to stages
//   consume  three or four warpgroups, a square each: products, then epilogue and stores
// Where two engines share the samples of x, each passes by those that are not its own, and the one
// that comes second ends at once where none was left.
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
template <Engine kEngine, EpilogueKind kKind, typename Io, int kN, int kSquares>
struct Consumer : Block {
  using Multiplier = Products<kEngine, kN>;
  const Multiplier products;
  using Epilogue = Finish<kKind, Io, kN, kSquares, kScales<kEngine>>;
  const Epilogue epilogue;
  // Kept from tile to tile: a tile's own would begin undefined, and what is read before it is
  // defined takes registers of its own all the time.
  using Accumulators = typename Multiplier::Accumulators;
  using Progress = typename Multiplier::Progress;

  __device__ Consumer(const Parameters& parameters, Shared& s, const Share& serves)
      : Block(parameters, s, serves),
        products(parameters, s, serves),
        epilogue(parameters, s, serves) {}

  // The band that comes as the given one at z of a run. Two pairs of warpgroups take tiles in turn,
  // and bands have fewer and more taps: where there is an even number of them, every second couple
  // of tiles comes the other way round, so that each pair has some of both. With one product
  // that gains nothing; boxes of add come to slots in the plain order.
  __device__ int in_turn(int z, int band) const {
    constexpr bool kGains = kSquares == 2 && Multiplier::kParts > 1 && !Epilogue::kSlots;
    return kGains && c.bands % 2 == 0 ? band ^ ((z * c.bands + band) >> 1 & 1) : band;
  }

  // Where weights stay: the block's tiles one by one, the warpgroups in turn.
  __device__ void march(int w) const {
    Progress progress;
    Accumulators acc = {};
    typename Epilogue::Slots slots(*this, w);
    wait(&shared.slot_full[0], 0);
    const int square = w % kSquares;
    int z = 0, band = 0;  // in the run
    const auto go_on = [&](int tiles) {
      for (band += tiles; band >= c.bands; band -= c.bands) ++z;
    };
    go_on(w / kSquares);
    uint32_t first_fill = 0;
    for (Run<kEngine> run(*this); run.exists();) {
      if (z >= run.tiles) {
        z -= run.tiles;
        first_fill += run.planes() * p.chunks;
        run.next();
        continue;
      }
      const uint32_t first = first_fill + z * p.chunks;
      Tile tile = run.tile(z, in_turn(z, band));
      tile.x += square * kSquareEdge;
      compute_tile(
          acc, tile, true, run.scale(),
          [&] { products.multiply_window(acc, this->band(tile.band), square, first, progress); },
          [&](int lane) { products.release_window(first, z, run.tiles, lane); }, slots, progress);
      if constexpr (Epilogue::kSlots) slots.leave_tile();
      go_on(kConsumersOf<kSquares> / kSquares);
    }
    // Shared memory must last until all of it is read.
    if constexpr (Epilogue::kBoxes) OutBox<Io, kN>(*this, lane()).await_read();
  }

  // Where weights go through the ring.
  __device__ void follow_ring(int w) const {
    Progress progress;
    Accumulators acc = {};
    typename Epilogue::Slots slots(*this, w);
    uint32_t ordinal = 0;
    for (uint32_t group = share.rank; group < groups(); group += share.ranks, ++ordinal) {
      const uint32_t index = group * kConsumers + w;
      compute_tile(
          acc, tile_at(index), index < c.tiles, 1.0f,
          [&] { products.multiply_by_ring(acc, w, ordinal, progress); }, [](int) {}, slots,
          progress);
    }
  }

  __device__ void consume(int w) const {
    ptx::grid_dependency_wait();
    if (kAlwaysMarches<kEngine, kSquares> || c.resident) {
      march(w);
    } else if constexpr (!kAlwaysMarches<kEngine, kSquares>) {
      follow_ring(w);
    }
  }

  // multiply starts the products; release follows when they are done. tile: the
  // warpgroup's square; scale: of its sample.
  template <typename Multiply, typename Release>
  __device__ void compute_tile(Accumulators& acc, const Tile& tile, bool exists, float scale,
                               const Multiply& multiply, const Release& release,
                               typename Epilogue::Slots& slots, Progress& progress) const {
    progress.started[0] = progress.started[1] = 0;
    multiply();
    const auto own = epilogue.own(scale);
    const bool in_box = Epilogue::kBoxes && p.out_boxes;
    bool finite;
    if (in_box) {
      ptx::wgmma_wait<0>();
      release(own.lane);
      if constexpr (Epilogue::kBoxes) finite = epilogue.finish_in_box(acc, own, tile);
    } else {
      finite = finish_in_place(acc, own, tile, exists, release, slots);
    }
    if (__any_sync(~0u, !finite && exists)) {
      // Orders the warp's stores before those of exact_rows.
      if (in_box) OutBox<Io, kN>::await_stored(own.lane);
      __syncwarp();
      exact_rows_apart<kEngine, kKind, Io, kN>(p, shared, share, tile);
    }
  }

  // Each thread stores its own outputs.
  template <typename Release>
  __device__ bool finish_in_place(Accumulators& acc, const typename Epilogue::Own& own,
                                  const Tile& tile, bool exists, const Release& release,
                                  typename Epilogue::Slots& slots) const {
    const auto outputs = epilogue.locate(own, tile, exists);
    typename Epilogue::Added added;
    if (outputs.whole) {
      if constexpr (Epilogue::kAdds && !Epilogue::kSlots)
        epilogue.load_first_groups(outputs, added);
      ptx::wgmma_wait<0>();
      release(own.lane);
      return epilogue.template finish<true>(acc, own, added, outputs, {}, slots);
    }
    ptx::wgmma_wait<0>();
    release(own.lane);
    return epilogue.template finish<false>(acc, own, added, outputs,
                                           epilogue.edges(own, tile, exists), slots);
  }
};

// Threads of a block, and registers of one that consumes and of one that loads. What some are given
// others must have given up, of what the block was launched with: else they wait forever.
template <int kMultiplying>
struct Roles {
  static constexpr int kThreads = 128 * (kMultiplying + 1);
  static constexpr int kLaunch = 65536 / kThreads / 8 * 8;
  static constexpr int kConsumer = kMultiplying == 3 ? 144 : 104;
  static constexpr int kLoader = kMultiplying == 3 ? 80 : 64;
  static_assert(kMultiplying * (kConsumer - kLaunch) <= kLaunch - kLoader);
};
template <int kSquares>
using RolesOf = Roles<kConsumersOf<kSquares>>;

// Of the threads that load, the one that starts copies of weights; its warp starts none of x.
template <int kSquares>
inline constexpr int kWeightLoader = kSquares == 1 ? 32 : 0;

template <Engine kEngine, EpilogueKind kKind, typename Io, int kN, int kSquares>
__global__ void __launch_bounds__(RolesOf<kSquares>::kThreads, 1)
    fused_kernel(const __grid_constant__ Parameters p) {
  if constexpr (kEngine == kUnscaledEngine) {
    if (p.ranges != nullptr) {
      ptx::grid_dependency_wait();
      if (*p.left_some == 0) return;
    }
  }
  extern __shared__ __align__(1024) unsigned char bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  prepare<kN, kSquares>(p, shared, find_share(p), kBiasScale<kKind>);
  __syncthreads();

  // The role must be the same for the whole warpgroup as the compiler sees it.
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (warpgroup < kConsumersOf<kSquares>) {
    ptx::registers_increase<RolesOf<kSquares>::kConsumer>();
    const Consumer<kEngine, kKind, Io, kN, kSquares> consumer(p, shared, find_share(p));
    consumer.consume(warpgroup);
  } else {
    ptx::registers_decrease<RolesOf<kSquares>::kLoader>();
    const BulkLoader<kEngine, kKind, Io, kN, kSquares> loader(p, shared, find_share(p));
    const int rank = static_cast<int>(ptx::thread_index()) - kConsumersOf<kSquares> * 128;
    const bool resident = loader.c.resident;
    const bool bulk = resident && p.bulk;
    if (kSquares == 2 || bulk) {
      if (rank == kWeightLoader<kSquares>) loader.load_resident_weights();
      if constexpr (kSelects<kEngine>) ptx::grid_dependency_wait();
      loader.bring_x(rank);
    } else if constexpr (kSquares == 1) {
      if (rank < kLoaders) {
        loader.load_x(rank);
      } else if (rank == kLoaders) {
        if (kAlwaysMarches<kEngine, kSquares> || resident) {
          loader.load_resident_weights();
        } else if constexpr (!kAlwaysMarches<kEngine, kSquares>) {
          loader.load_weights_by_ring();
        }
      }
    }
    // All that the block reads of x has been asked for, but where threads copy elements themselves,
    // of whom some have none. Sooner was slower in fp32 (docs/kernels.md, version 15).
    ptx::grid_launch_dependents();
  }
}

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_KERNEL_CUH_
