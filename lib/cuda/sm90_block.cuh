// SPDX-License-Identifier: Apache-2.0
//
// What all roles of a block of "cuda/sm90" share: the wait on a barrier, the swizzle of operands,
// tiles and how they are counted through, and the state that roles see. No role's own work lives
// here.
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

// A tile, or a distance between tiles, as digits of its index: n, z, y, x.
struct Digits {
  int n, z, y, x;

  __device__ Digits(const Work& work, uint32_t index) {
    x = static_cast<int>(index % work.tiles_x);
    index /= work.tiles_x;
    y = static_cast<int>(index % work.tiles_y);
    index /= work.tiles_y;
    z = static_cast<int>(index % work.positions_z);
    n = static_cast<int>(index / work.positions_z);
  }

  // Without the divisions that a new index would need.
  __device__ void add(const Work& work, const int4& step) {
    x += step.x;
    int carry = x >= static_cast<int>(work.tiles_x);
    x -= carry ? work.tiles_x : 0;
    y += step.y + carry;
    carry = y >= static_cast<int>(work.tiles_y);
    y -= carry ? work.tiles_y : 0;
    z += step.z + carry;
    carry = z >= static_cast<int>(work.positions_z);
    z -= carry ? work.positions_z : 0;
    n += step.w + carry;
  }
};

struct Tile {
  int n, z, y, x;  // y and x of the first position

  __device__ Tile(const Parameters& p, const Digits& digits)
      : n(digits.n), z(digits.z), y(digits.y * kTileEdge), x(digits.x * p.tile_x) {}
};

// What roles see. A role is a struct that derives from it, made where the role starts.
struct Block {
  const Parameters& p;
  Shared& shared;
  const Class& c;
  const Work& work;

  __device__ Block(const Parameters& parameters, Shared& s)
      : p(parameters), shared(s), c(s.now), work(s.work) {}

  // Tiles are dealt in groups of neighbours, one a warpgroup. Where weights go through the ring
  // all warpgroups always take part, on a tile past the end too.
  __device__ uint32_t groups() const { return (work.tiles + kConsumers - 1) / kConsumers; }

  // Fills of stages are numbered over the life of a block, for the warpgroups in turn: the stage of
  // a fill, and the parity of the phase of its barrier full.
  __device__ uint32_t stage_of(uint32_t number) const {
    return number & ((1u << c.stages_log2) - 1);
  }
  __device__ uint32_t parity_of(uint32_t number) const { return number >> c.stages_log2 & 1; }
  __device__ unsigned char* stage_at(uint32_t stage) const {
    return shared.dynamic + work.stages_at + stage * c.stage_bytes;
  }

  // Elements between channels.
  __device__ int64_t input_plane() const { return static_cast<int64_t>(p.id) * p.ih * p.iw; }
  __device__ int64_t output_plane() const { return static_cast<int64_t>(p.od) * p.oh * p.ow; }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_BLOCK_CUH_
