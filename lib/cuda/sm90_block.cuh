// SPDX-License-Identifier: Apache-2.0
//
// What all roles of a block of "cuda/sm90" share: the wait on a barrier, the swizzle of operands,
// units and tiles and how they are counted through, and the state that roles see. No role's own
// work lives here.
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
using OperandOf = std::conditional_t<kEngine == Engine::kFp16x1, __half, __nv_bfloat16>;

// Passes over a tile's operands: the small products first, then the main one.
template <Engine kEngine>
inline constexpr int kPassesOf = kPartsOf<kEngine> > 1 ? 2 : 1;

// Operands in shared memory have rows of 64 bytes, swizzled: where the 16 bytes eight of the row at
// address are. Depends on the address itself, so that a row can be the first of a matrix wherever
// it lies: taps are shifts of one slab.
__device__ inline uint32_t swizzled(uint32_t address, uint32_t eight) {
  return (eight ^ (address >> 7 & 3)) * 16;
}

// A unit, or a distance between units, as digits of its index: n, segment along z, y, x.
struct Digits {
  int n, segment, y, x;

  __device__ Digits(const Work& work, uint32_t index) {
    x = static_cast<int>(index % work.tiles_x);
    index /= work.tiles_x;
    y = static_cast<int>(index % work.tiles_y);
    index /= work.tiles_y;
    segment = static_cast<int>(index % work.segments);
    n = static_cast<int>(index / work.segments);
  }

  // Without the divisions that a new index would need.
  __device__ void add(const Work& work, const int4& step) {
    x += step.x;
    int carry = x >= static_cast<int>(work.tiles_x);
    x -= carry ? work.tiles_x : 0;
    y += step.y + carry;
    carry = y >= static_cast<int>(work.tiles_y);
    y -= carry ? work.tiles_y : 0;
    segment += step.z + carry;
    carry = segment >= static_cast<int>(work.segments);
    segment -= carry ? work.segments : 0;
    n += step.w + carry;
  }
};

struct Tile {
  int n, z, y, x;  // y and x of the first position
};

// What roles see. A role is a struct that derives from it, made where the role starts.
struct Block {
  const Parameters& p;
  Shared& shared;
  const Class& c;
  const Work& work;

  __device__ Block(const Parameters& parameters, Shared& s)
      : p(parameters), shared(s), c(s.now), work(s.work) {}

  // Where weights go through the ring a unit is a tile, and units are dealt in groups, one a
  // warpgroup: all warpgroups always take part, on a tile past the end too.
  __device__ uint32_t groups() const { return (work.units + kConsumers - 1) / kConsumers; }

  // Tiles of a unit, and planes that they march through.
  __device__ int tiles_of(const Digits& unit) const {
    return min(work.segment, work.positions_z - unit.segment * work.segment);
  }
  __device__ int planes_of(const Digits& unit) const { return tiles_of(unit) + c.window - 1; }
  __device__ Tile tile_of(const Digits& unit, int i) const {
    return {unit.n, unit.segment * work.segment + i, unit.y * kTileEdge, unit.x * p.tile_x};
  }

  // Fills of stages are numbered over the life of a block: the stage of a fill, and the parity of
  // the phase of its barrier full. Exact below 2^29 fills.
  struct Fill {
    uint32_t stage, parity;
  };
  __device__ Fill fill_of(uint32_t number) const {
    const uint32_t round = __umulhi(number, work.stage_reciprocal);
    return {number - round * c.stages, round & 1};
  }
  __device__ uint32_t stage_at(uint32_t stage) const {
    return ptx::shared_address(shared.dynamic) + work.stages_at + stage * work.slab_bytes;
  }

  // Elements between channels.
  __device__ int64_t input_plane() const { return static_cast<int64_t>(p.id) * p.ih * p.iw; }
  __device__ int64_t output_plane() const { return static_cast<int64_t>(p.od) * p.oh * p.ow; }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_BLOCK_CUH_
