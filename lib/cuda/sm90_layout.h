// SPDX-License-Identifier: Apache-2.0
//
// What host and device of "cuda/sm90" agree on: engines, tile sizes, the class table, the layout of
// packed weights and of shared memory, and the launch parameters. No code that runs on a device.
//
// A class is a set of outputs that share their taps: one phase along z and y, one or two phases
// along x, and one tile of output channels. A tile is 8 x 8 positions q of a class at one z: a
// matrix product with M = 64 positions, N = kN output channels and K = taps x input channels, for
// each of the two accumulators. With stride 2 these are the two x phases; with stride 1 the second
// one is the neighbour 8 to the right; with stride 3 it may be missing.
#ifndef VOLUP_CUDA_SM90_LAYOUT_H_
#define VOLUP_CUDA_SM90_LAYOUT_H_

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "epilogue.h"

namespace volup::sm90 {

// Operands are split into parts of 16 bits; the products of part a of x with part b of w are summed
// for a + b < parts.
enum class Engine : int32_t {
  kBf16x1,  // bf16 products
  kFp16x1,  // fp16 products
  kBf16x2,  // 16 significant bits: 3 products, better than TF32
  kBf16x3   // 24 significant bits and fp32's exponents: 6 products, fp32-class
};
template <Engine kEngine>
inline constexpr int kPartsOf = kEngine == Engine::kBf16x3   ? 3
                                : kEngine == Engine::kBf16x2 ? 2
                                                             : 1;

inline constexpr int kRows = 64;   // positions of a tile, an accumulator
inline constexpr int kChunk = 32;  // input channels that are staged together, padded
inline constexpr int kEights = kChunk / 8;
inline constexpr int kRowBytes = kChunk * 2;  // of an operand's part in shared memory
inline constexpr int kTileEdge = 8;           // along x and along y
inline constexpr int kConsumers = 2;          // warpgroups that multiply
inline constexpr int kLoaders = 224;  // threads that load and split x; one warp loads weights
inline constexpr int kThreads = 512;
inline constexpr int kMaxResidentSteps = 120;  // of a tile with resident weights
inline constexpr int kMaxPlanes = 5;           // taps along z
inline constexpr int kMaxSteps = 25;           // taps along y and x, an accumulator
inline constexpr int kMaxClasses = 448;
inline constexpr int kMaxStages = 8;
inline constexpr int kSlots = 4;  // of the ring of weights, a block of them each

// One class, in the packed bytes.
struct Class {
  int32_t phase_z, phase_y, phase_x[2];
  int32_t shift_x[2];     // of the accumulator's positions: 0, or kTileEdge
  int32_t accumulators;   // 1 or 2
  int32_t first_channel;  // of the channel tile
  int32_t planes;         // taps along z, at least 1
  int32_t delta_z[kMaxPlanes];
  int32_t y_min, x_min;    // input position of the slab's first element, relative to the tile's
  int32_t slab_y, slab_x;  // extent of a slab: what one z tap of a tile reads
  int32_t steps[2];        // taps along y and x of an accumulator, at least 1 (of zero weights)
  int32_t empty[2];        // no tap reaches these outputs
  int32_t step_offset[2][kMaxSteps];  // slab position that a step's first row reads
  int64_t weight_bytes;               // of the class
  int64_t weight_offset;              // in the packed weights

  // How shared memory is used: a stage holds the slabs of a tile or, where those are too many, one
  // slab. The weights stay, or go through a ring of slots.
  int32_t whole;     // a stage holds all slabs of a tile
  int32_t resident;  // weights stay
  int32_t stages_log2, stage_bytes;
};

// Bytes of packed weights are blocks, class after class; in a class ordered by chunk of input
// channels, plane, accumulator, step. A block is [part][kN][kChunk] elements of 16 bits, a slab in
// shared memory [part][slab_y][slab_x][kChunk]; rows of kChunk are swizzled.

// What a block of the grid does, worked out once.
struct Work {
  uint32_t tiles_x, tiles_y, positions_z, tiles;  // of the class
  uint32_t rank, ranks;                           // of the block among those of its class
  int32_t slabs, positions, slab_bytes;           // of a tile, of a slab
  int32_t fills;                                  // of stages, a tile
  int32_t block_bytes;                            // of weights
  int32_t stages_at;                              // in the dynamic shared memory
};

struct Shared {
  // Barriers: of stages; of slots, where weights that stay use slot_full[0] alone; and of a
  // warpgroup's turn to multiply.
  uint64_t full[kMaxStages], empty[kMaxStages];
  uint64_t slot_full[kSlots], slot_empty[kSlots];
  uint64_t turn[kConsumers];

  Class now;
  Work work;
  uint32_t not_finite[kConsumers];
  // Distances between tiles, as digits x, y, z, n: to the neighbour in a group, from a group's last
  // to the next group's first, to a warpgroup's own next.
  int4 to_neighbour, to_next_first, to_next_own;
  uint2 steps[kMaxResidentSteps];  // of a tile: offsets of x and of w in 16 bytes
  float bias[128];
  alignas(1024) unsigned char dynamic[16];  // weights, then stages
};
inline constexpr size_t kSharedHeader = offsetof(Shared, dynamic);

struct Parameters {
  const void* x;
  const void* add;
  void* out;
  const Class* classes;
  const unsigned char* weights;
  const float* bias;  // of all channel tiles, padded
  Epilogue epilogue;
  float gate_scale, gate_shift;  // of add_hardswish: clamp(t * scale + shift, 0, 1)

  int32_t n, ci, id, ih, iw;
  int32_t co, od, oh, ow;
  int32_t stride_z, stride_y, stride_x;
  int32_t tile_x;  // base positions a tile advances along x: 8, or 16 with stride 1
  int32_t chunks;  // of input channels
  int32_t paired;  // outputs of the two accumulators are neighbours, aligned to two elements
  int32_t class_count;
  int32_t first_block[kMaxClasses + 1];  // blocks of the grid that serve a class
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_LAYOUT_H_
