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

#include <cuda.h>
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

inline constexpr int kRows = 64;         // positions of a tile, an accumulator
inline constexpr int kMaxChannels = 64;  // kN at most
inline constexpr int kChunk = 32;        // input channels that are staged together, padded
inline constexpr int kEights = kChunk / 8;
inline constexpr int kRowBytes = kChunk * 2;  // of an operand's part in shared memory
inline constexpr int kTileEdge = 8;           // along x and along y
inline constexpr int kConsumers = 3;          // warpgroups that multiply; one more loads
inline constexpr int kLoaders = 96;  // threads of that which split x; a warp starts bulk copies
inline constexpr int kThreads = 128 * (kConsumers + 1);
inline constexpr int kMaxResidentSteps = 160;  // of a tile where weights stay
inline constexpr int kMaxPlanes = 5;           // taps along z
inline constexpr int kMaxSteps = 25;           // taps along y and x, an accumulator
inline constexpr int kMaxClasses = 448;
inline constexpr int kMaxStages = 8;
inline constexpr int kSlots = 4;  // of the ring of weights, a block of them each
inline constexpr int kBatch = 4;  // tasks of a loading thread in a piece
inline constexpr int kPieceTasks = kLoaders * kBatch;
inline constexpr int kTaskBytes = 32;  // of raw x, a task: 8 channels of a position, 4 bytes each
inline constexpr int kMaxRawSlots = 3;

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

  // How shared memory is used. Where the weights stay, tiles march along z through the slabs of
  // their window of planes, each loaded once; else the weights go through a ring of slots, and a
  // tile's slabs are loaded for it alone. A stage holds a slab.
  int32_t resident;       // weights stay
  int32_t z_min, window;  // planes that tiles march through: z_min .. z_min + window - 1
  int32_t stages;
  int32_t raw_slots;  // of x on its way: 2 or kMaxRawSlots
  int32_t raw_slot_bytes;
};

// Bytes of packed weights are blocks, class after class; in a class ordered by chunk of input
// channels, plane, accumulator, step. A block is [part][kN][kChunk] elements of 16 bits, a slab in
// shared memory [part][slab_y][slab_x][kChunk]; rows of kChunk are swizzled.

// What a block of the grid does, worked out once.
struct Work {
  // Units of the class: tiles at neighbouring z, segment of them or what is left.
  uint32_t tiles_x, tiles_y, segments, units;
  int32_t segment, positions_z;
  uint32_t rank, ranks;                  // of the block among those of its class
  int32_t slabs, positions, slab_bytes;  // of a tile, of a slab
  int32_t block_bytes;                   // of weights
  int32_t raw_at, stages_at;             // in the dynamic shared memory
  uint32_t stage_reciprocal;             // ceil(2^32 / stages)
};

struct Shared {
  // Barriers: of slots of raw x that bulk copies fill; of stages; and of slots, where weights that
  // stay use slot_full[0] alone.
  uint64_t raw_full[kMaxRawSlots], raw_empty[kMaxRawSlots];
  uint64_t full[kMaxStages], empty[kMaxStages];
  uint64_t slot_full[kSlots], slot_empty[kSlots];

  Class now;
  Work work;
  uint2 steps[kMaxResidentSteps];  // where a tile's steps find their operands: list_steps
  uint32_t begun;                  // fills of stages that were begun
  uint32_t raw_end;                // the fill of raw x that does not come any more
  int4 to_next_unit;               // of the block, as digits x, y, segment, n
  float bias[kMaxChannels];
  alignas(1024) unsigned char dynamic[16];  // weights, raw x, stages
};
inline constexpr size_t kSharedHeader = offsetof(Shared, dynamic);

struct Parameters {
  CUtensorMap x_map;  // of x, where bulk is set
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
  int32_t tile_x;   // base positions a tile advances along x: 8, or 16 with stride 1
  int32_t chunks;   // of input channels
  int32_t segment;  // tiles along z that a unit has where weights stay
  int32_t paired;   // outputs of the two accumulators are neighbours, aligned to two elements
  // Boxes of x that bulk copies take, a slab's positions and kChunk channels; where bulk is not set
  // threads copy elements.
  int32_t bulk, box_x, box_y;
  int32_t even_count;   // x has an even number of elements
  int32_t whole_words;  // every element of x lies in 4 aligned bytes that are x's own
  int32_t class_count;
  int32_t first_block[kMaxClasses + 1];  // blocks of the grid that serve a class
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_LAYOUT_H_
