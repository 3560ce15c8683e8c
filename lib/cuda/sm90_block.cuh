// SPDX-License-Identifier: Apache-2.0
//
// What all roles of a block of "cuda/sm90" share: the wait on a barrier, the swizzle of operands,
// tiles and how a block goes through its own, and the state that roles see. No role's own work
// lives here.
#ifndef VOLUP_CUDA_SM90_BLOCK_CUH_
#define VOLUP_CUDA_SM90_BLOCK_CUH_

#include <type_traits>

#include "cuda/ptx.h"
#include "cuda/sm90_layout.h"

namespace volup::sm90 {

// Until the phase of this parity of barrier has completed. The phase before a barrier's first one
// counts as completed, with parity 1: so stages and slots start empty.
__device__ inline void wait(uint64_t* barrier, uint32_t parity) {
  while (!ptx::mbarrier_try_wait(barrier, parity)) {
  }
}

__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(__half v) { return __half2float(v); }
__device__ inline float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }

template <typename T>
__device__ T from_float(float v) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(v);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(v);
  } else {
    return v;
  }
}

// The type of a part of an operand.
template <Engine kEngine>
using OperandOf = std::conditional_t<kEngine == Engine::kFp16x1 || kEngine == Engine::kFp16x2,
                                     __half, __nv_bfloat16>;

// Passes over a tile's operands: the small products first, then the main one.
template <Engine kEngine>
inline constexpr int kPassesOf = kPartsOf<kEngine> > 1 ? 2 : 1;

// Operands in shared memory have rows of 64 bytes, swizzled: where the 16 bytes eight of the row at
// address are. Depends on the address itself, so that a row can be the first of a matrix wherever
// it lies: taps are shifts of one slab.
__device__ inline uint32_t swizzled(uint32_t address, uint32_t eight) {
  return (eight ^ (address >> 7 & 3)) * 16;
}

struct Tile {
  int n, z, y, x;  // y and x of the first position
  int band = 0;    // of the class
};

// Of the thread in its warpgroup.
__device__ inline int lane() { return ptx::thread_index() % 32; }
__device__ inline int warp() { return ptx::thread_index() % 128 / 32; }

// The power of two that kScaledEngine multiplies a sample of x by; 0 where it leaves the sample to
// kUnscaledEngine. By a warp.
__device__ inline float scale_of_sample(const Parameters& p, int n) {
  uint32_t greatest = 0, least_less_1 = ~0u, filled = 0;
  // All loads are under way together.
#pragma unroll
  for (int first = 0; first < kMaxPieces; first += 32) {
    const int piece = first + lane();
    if (piece >= p.pieces) continue;
    const Range range = p.ranges[static_cast<int64_t>(n) * p.pieces + piece];
    greatest = max(greatest, range.greatest);
    least_less_1 = min(least_less_1, range.least_less_1);
    filled += range.filled;
  }
  const auto exponent = [](uint32_t bits) { return static_cast<int>(bits >> 23) - 127; };
  const int of_greatest = exponent(__reduce_max_sync(~0u, greatest));
  const int of_least = exponent(__reduce_min_sync(~0u, least_less_1) + 1);
  const uint32_t of_filled = __reduce_add_sync(~0u, filled);
  const bool fits = abs(of_greatest) <= kMaxExponent && of_greatest - of_least <= kExponentSpan &&
                    of_filled >= static_cast<uint32_t>(kLeastFilled * p.pieces);
  return fits ? __uint_as_float((127 + kGreatestExponent - of_greatest) << 23) : 0.0f;
}

// What a block serves: a share, and which of the blocks of that share it is.
struct Share {
  int class_index, channel_tile;
  uint32_t rank, ranks;
};

// What roles see. A role is a struct that derives from it, made where the role starts.
struct Block {
  const Parameters& p;
  Shared& shared;
  const Share share;
  const Class& c;

  __device__ Block(const Parameters& parameters, Shared& s, const Share& serves)
      : p(parameters), shared(s), share(serves), c(parameters.classes[serves.class_index]) {}

  __device__ int first_channel(int channels) const { return share.channel_tile * channels; }
  __device__ const unsigned char* weights() const {
    return p.weights + share.channel_tile * p.tile_weight_bytes + c.weight_offset;
  }

  // Tiles are counted along z first: those of a column follow each other. Where weights stay the
  // blocks of a share take whole columns in turn, so that neighbours in memory are written at about
  // the same time; tiles of the columns that remain are divided evenly, to one tile.
  __device__ Tile tile_at(uint32_t index) const {
    const int z = static_cast<int>(index % c.positions_z);
    index /= c.positions_z;
    const int x = static_cast<int>(index % c.tiles_x);
    index /= c.tiles_x;
    return {static_cast<int>(index / c.tiles_y), z,
            static_cast<int>(index % c.tiles_y) * kSquareEdge, x * p.tile_x};
  }
  __device__ const Band& band(int i) const { return p.bands[c.first_band + i]; }
  struct Stretch {
    uint32_t first, count;
  };
  __device__ uint32_t whole_columns() const { return c.columns / share.ranks; }
  __device__ Stretch column(uint32_t round) const {
    return {(share.rank + round * share.ranks) * c.positions_z,
            static_cast<uint32_t>(c.positions_z)};
  }
  __device__ Stretch remainder() const {
    const uint32_t remaining = c.columns % share.ranks * c.positions_z;
    const uint32_t each = remaining / share.ranks, more = remaining % share.ranks;
    return {
        whole_columns() * share.ranks * c.positions_z + share.rank * each + min(share.rank, more),
        each + (share.rank < more)};
  }

  // Of kScaledEngine, about a sample; of kUnscaledEngine.
  __device__ void leave(int n) const {
    *p.left_some = 1;
    p.ranges[static_cast<int64_t>(n) * p.pieces].left = 1;
  }
  __device__ bool was_left(int n) const {
    return p.ranges[static_cast<int64_t>(n) * p.pieces].left != 0;
  }

  // A run is tiles of a block that follow each other in a column: they march through its planes.
  // kOf: the engine, which may pass by the samples that another one takes.
  template <Engine kOf>
  struct Run {
    const Block& block;
    uint32_t round = ptx::varying(0);  // columns before this one, remainder last
    Stretch left;                      // of the column
    Tile first;
    int tiles;

    __device__ explicit Run(const Block& b) : block(b), left(b.stretch_of(0)) {
      if constexpr (kSelects<kOf>) first.n = -1;
      settle();
    }
    // Of the sample.
    __device__ float scale() const { return kScales<kOf> ? sample_scale : 1.0f; }
    __device__ bool exists() const { return tiles != 0; }
    __device__ int planes() const { return tiles + block.c.window - 1; }
    __device__ Tile tile(int z, int band = 0) const {
      return {first.n, first.z + z, first.y, first.x, band};
    }
    __device__ void next() {
      advance();
      settle();
    }

   private:
    float sample_scale;  // 0: another engine's

    __device__ void advance() {
      left = {left.first + tiles, left.count - tiles};
      if (left.count == 0) left = block.stretch_of(++round);
    }
    __device__ void settle() {
      if constexpr (kSelects<kOf>) {
        for (;; advance()) {
          const int last = first.n;
          locate();
          if (block.p.ranges == nullptr || !exists()) return;
          if constexpr (kScales<kOf>) {
            if (first.n != last) sample_scale = scale_of_sample(block.p, first.n);
            if (sample_scale != 0.0f) return;
            if (lane() == 0) block.leave(first.n);
          } else {
            if (block.was_left(first.n)) return;
          }
        }
      } else {
        locate();
      }
    }
    // Uniform registers are too few for all of this, and for the reciprocals that divisions would
    // keep in them: only what every tile needs is in some.
    __device__ void locate() {
      left = {ptx::varying(left.first), ptx::varying(left.count)};
      const Tile tile = block.tile_at(left.first);
      first = {__shfl_sync(~0u, tile.n, 0), __shfl_sync(~0u, tile.z, 0),
               __shfl_sync(~0u, tile.y, 0), __shfl_sync(~0u, tile.x, 0)};
      tiles = __shfl_sync(~0u, min(static_cast<int>(left.count), block.c.positions_z - tile.z), 0);
    }
  };
  __device__ Stretch stretch_of(uint32_t round) const {
    const uint32_t whole = whole_columns();
    return round < whole ? column(round) : round == whole ? remainder() : Stretch{0, 0};
  }

  // The tiles of a warpgroup where weights stay: those of the block one by one, the warpgroups in
  // turn. Consumer::march walks the same way, written out, for the compiler spills less, and with
  // bands that change places.
  template <Engine kOf>
  struct Turns {
    Run<kOf> run;
    int z = 0, band = 0;  // in the run

    __device__ Turns(const Block& block, int first) : run(block) { go_on(first); }
    __device__ bool exist() const { return run.exists(); }
    __device__ Tile tile() const { return run.tile(z, band); }
    __device__ void go_on(int tiles) {
      for (band += tiles; band >= run.block.c.bands; band -= run.block.c.bands) ++z;
      while (run.exists() && z >= run.tiles) {
        z -= run.tiles;
        run.next();
      }
    }
  };

  // Where weights go through the ring tiles are dealt in groups, one tile a warpgroup: all
  // warpgroups always take part, on a tile past the end too.
  __device__ uint32_t groups() const { return (c.tiles + kConsumers - 1) / kConsumers; }

  // Fills of stages are numbered over the life of a block: the stage of a fill, and the parity of
  // the phase of its barrier full. Exact below 2^29 fills.
  struct Fill {
    uint32_t stage, parity;
  };
  __device__ Fill fill_of(uint32_t number) const {
    const uint32_t round = __umulhi(number, c.stage_reciprocal);
    return {number - round * c.stages, round & 1};
  }
  // The one by fewer than stages after it.
  __device__ Fill fill_after(const Fill& fill, uint32_t by) const {
    const uint32_t stages = c.stages, stage = fill.stage + by;
    return stage < stages ? Fill{stage, fill.parity} : Fill{stage - stages, fill.parity ^ 1};
  }
  __device__ uint32_t stage_at(uint32_t stage) const {
    return ptx::shared_address(shared.dynamic) + c.stages_at + stage * c.slab_bytes;
  }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_BLOCK_CUH_
