// SPDX-License-Identifier: Apache-2.0
//
// What host and device of "cuda/sm90" agree on: engines, tile sizes, the class table, the layout of
// packed weights and of shared memory, and the launch parameters. No code that runs on a device.
//
// A band is a set of outputs that share their taps: one phase along z and y, one or two phases
// along x. A square is 8 x 8 positions q of a band at one z: a matrix product with M = 64
// positions, N = kN output channels and K = taps x input channels, for each of the two
// accumulators. With stride 2 these are the two x phases; with stride 1 the second one is the
// neighbour 8 to the right; with stride 3 it may be missing. A tile is a square, or two
// side by side along x, whose outputs fill lines of memory together. A class is
// what a block computes from the same slabs of x: one band, or those of all phases along y where
// their weights fit into shared memory together. A share is what a group of blocks computes: one
// class for one tile of output channels.
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
  kBf16x3,  // 24 significant bits and fp32's exponents: 6 products, fp32-class
  kFp16x2   // 23 significant bits, of numbers scaled into fp16's exponents: 3 products, fp32-class
};
template <Engine kEngine>
inline constexpr int kPartsOf = kEngine == Engine::kBf16x3                                 ? 3
                                : kEngine == Engine::kBf16x2 || kEngine == Engine::kFp16x2 ? 2
                                                                                           : 1;

// fp16 pairs hold a number of 2^-13 to 2^15 as a high part and a low one, which is scaled by 2^11
// so that it has as many bits. Numbers are scaled by a power of two, one of all weights and one of
// each sample of x, that takes the greatest to [2^14, 2^15). Where the least that is not 0 is below
// 2^-13 then, or few are not 0 (an output of one product alone is exact by a chain of FMA), the
// engine that needs no scale takes the sample.
inline constexpr Engine kScaledEngine = Engine::kFp16x2;
inline constexpr Engine kUnscaledEngine = Engine::kBf16x3;
template <Engine kEngine>
inline constexpr bool kScales = kEngine == kScaledEngine;
// Whether the engine may have to leave samples to the other one.
template <Engine kEngine>
inline constexpr bool kSelects = kEngine == kScaledEngine || kEngine == kUnscaledEngine;
// Whether weights stay in all plans of the engine.
template <Engine kEngine, int kSquares>
inline constexpr bool kAlwaysMarches = kSquares == 2 || kScales<kEngine>;
inline constexpr float kLowScale = 2048;
inline constexpr int kGreatestExponent = 14;
inline constexpr int kExponentSpan = 27;  // from the greatest to the least
inline constexpr int kMaxExponent = 60;   // and its negative: of the greatest, before scaling
inline constexpr int kFilled = 1024;      // a piece's numbers, all of them not 0
inline constexpr int kLeastFilled = 3 * kFilled / 16;  // of a sample's pieces on average

inline constexpr int kMaxPieces = 128;  // of a sample, whose ranges are measured

// What measure_ranges finds out about the numbers of a piece of a sample: magnitudes as bits, which
// order as numbers do, of those that are neither 0, infinite nor NaN.
struct alignas(16) Range {
  uint32_t greatest;      // 0 where there are none
  uint32_t least_less_1;  // 0 less 1, what there is without any, is the greatest of all
  uint32_t filled;        // of kFilled, those that are not 0
  uint32_t left;          // of a sample's first piece: whether kScaledEngine left the sample
};

inline constexpr int kRows = 64;         // positions of a square, an accumulator
inline constexpr int kMaxChannels = 64;  // kN at most
inline constexpr int kChunk = 32;        // input channels that are staged together, padded
inline constexpr int kEights = kChunk / 8;
inline constexpr int kRowBytes = kChunk * 2;  // of an operand's part in shared memory
inline constexpr int kSquareEdge = 8;         // along x and along y
inline constexpr int kMaxSquares = 2;         // of a tile
// Warpgroups that multiply, a square each; one more loads. Four hide each other's waiting better
// than three, and two squares at a time make whole lines.
template <int kSquares>
inline constexpr int kConsumersOf = kSquares == 1 ? 3 : 4;
inline constexpr int kConsumers = kConsumersOf<1>;  // where weights go through the ring
// Threads that split x where it comes by bulk copies, of four warps that load.
template <int kSquares>
inline constexpr int kSplittersOf = kSquares == 1 ? 128 : 96;
inline constexpr int kLoaders = 96;   // those that copy x themselves; a warp starts bulk copies
inline constexpr int kMaxPlanes = 5;  // taps along z
inline constexpr int kMaxSteps = 25;  // taps along y and x, an accumulator
inline constexpr int kMaxBands = 18;  // 3 phases along z and y, 2 pairs of them along x
inline constexpr int kMaxClasses = kMaxBands;
inline constexpr int kMaxShares = 448;
inline constexpr int kMaxStages = 8;
inline constexpr int kSlots = 4;  // of the ring of weights, a block of them each
inline constexpr int kBatch = 4;  // tasks of a loading thread in a piece
inline constexpr int kPieceTasks = kLoaders * kBatch;
inline constexpr int kTaskBytes = 32;  // of raw x, a task: 8 channels of a position, 4 bytes each
inline constexpr int kMaxRawSlots = 3;
inline constexpr int kMaxBulkSlots = 6;

// Channels of raw x that a bulk copy brings. Two squares leave little shared memory: half a chunk.
constexpr int box_channels(int squares, int element) {
  return squares == 2 && element == 4 ? kChunk / 2 : kChunk;
}

// Add of tiles of two squares comes by bulk copies, in boxes of all their outputs in some channels:
// [8 y][channels][32 x], swizzled as wide as a row is. They go to a ring of slots in the order of
// tiles. The pairs of warpgroups that take tiles in turn are told of each box by barriers of their
// own, no fewer than slots: so who waits for one has waited for the one before it there.
inline constexpr int kAddPairs = kConsumersOf<kMaxSquares> / kMaxSquares;
inline constexpr int kMaxAddSlots = 6;  // fewer are slower, more are not faster
inline constexpr int kAddBarriers = 8;
inline constexpr int kAddSlotBytes = 8192;
inline constexpr int kAddRow = 2 * kSquareEdge * kMaxSquares;  // outputs
constexpr int add_channels(int element) {
  return kAddSlotBytes / (kSquareEdge * kAddRow * element);
}

// Outputs of 16 bits that nothing is added to leave tiles of two squares by bulk copies, a warp's
// 16 positions at a time, in boxes [2 y][channels][16 x] of its own, while the warp is at its next
// tile. Boxes of 4 bytes an output, 128 KiB, would leave too little for weights and stages.
constexpr bool boxes_outputs(EpilogueKind kind, int squares, int element) {
  return squares == kMaxSquares && element == 2 && !takes_add(kind);
}
inline constexpr int kOutRow = 2 * kSquareEdge;  // outputs
inline constexpr int kOutRows = 2;               // along y
constexpr int out_box_bytes(int channels, int element) {
  return kOutRows * channels * kOutRow * element;
}

// Bands and classes. The launch parameters hold all of them: what is the same for a whole block is
// read from the constant bank, as operands of instructions, while shared memory is slow to answer.
enum StepKind : int32_t { kBoth, kFirst, kSecond, kStepKinds };
struct Band {
  int32_t phase_y;
  // Taps along y and x, at least 1 of an accumulator (of zero weights): of both accumulators where
  // those read the same positions and weights stay, of the first alone, of the second alone.
  int32_t steps[kStepKinds];
  int32_t empty[2];                             // no tap reaches these outputs
  uint16_t step_at[kStepKinds][kMaxSteps + 1];  // row of the slab a step starts at, in 16 bytes
  int32_t first_block;                          // of its weights in the class

  VOLUP_HOST_DEVICE int32_t blocks() const {
    return 2 * steps[kBoth] + steps[kFirst] + steps[kSecond];
  }
};
struct Class {
  int32_t first_band, bands;
  int32_t phase_z, phase_x[2];
  int32_t shift_x[2];    // of the accumulator's positions: 0, or kSquareEdge
  int32_t accumulators;  // 1 or 2
  int32_t planes;        // taps along z, at least 1
  int32_t delta_z[kMaxPlanes];
  int32_t y_min, x_min;    // input position of the slab's first element, relative to the tile's
  int32_t slab_y, slab_x;  // extent of a slab: what one z tap of a tile reads
  int32_t positions;       // slab_y * slab_x
  int32_t slab_bytes;      // of all parts
  int32_t weight_blocks;   // for a channel tile
  int64_t weight_bytes;    // of those
  int64_t weight_offset;   // in the packed weights of a channel tile

  // How shared memory is used. Where the weights stay, tiles march along z through the slabs of
  // their window of planes, each loaded once; else the weights go through a ring of slots, and a
  // tile's slabs are loaded for it alone. A stage holds a slab.
  int32_t resident;              // weights stay
  int32_t z_min, window;         // planes that tiles march through: z_min .. z_min + window - 1
  int32_t plane_of[kMaxPlanes];  // of a tap along z, in the window: delta_z - z_min
  int32_t stages;
  uint32_t stage_reciprocal;  // ceil(2^32 / stages)
  int32_t raw_slots;          // of x on its way: 2 to kMaxRawSlots, or kMaxBulkSlots
  int32_t raw_slot_bytes;
  int32_t quads_of_row, quads;                // of a box that bulk copies bring: see BulkLoader
  int32_t add_slots;                          // 2 to kMaxAddSlots, or 0
  int32_t raw_at, stages_at, add_at, out_at;  // in the dynamic shared memory

  // Tiles of a band for a channel tile: of the problem's sizes, not of the plan.
  int32_t tiles_x, tiles_y, positions_z;
  uint32_t columns, tiles;
};

// Bytes of packed weights are blocks, channel tile after channel tile and in it class after class;
// in a class ordered by band, chunk of input channels, plane, kind of step, step. A block is
// [part][kN][kChunk] elements of 16 bits, two of a step of both accumulators
// [part][accumulator][kN][kChunk], a slab in shared memory [part][slab_y][slab_x][kChunk];
// rows of kChunk are swizzled.
template <Engine kEngine, int kN>
inline constexpr int kBlockBytes = kPartsOf<kEngine>* kN* kRowBytes;

struct Shared {
  // Barriers: of slots of raw x that bulk copies fill; of stages; and of slots, where weights that
  // stay use slot_full[0] alone.
  uint64_t raw_full[kMaxBulkSlots], raw_empty[kMaxBulkSlots];
  uint64_t full[kMaxStages], empty[kMaxStages];
  uint64_t slot_full[kSlots], slot_empty[kSlots];
  uint64_t add_full[kAddPairs][kAddBarriers], add_empty[kMaxAddSlots];

  float raw_scale[kMaxBulkSlots];        // of the sample that a slot has a slab's first box of
  uint32_t begun;                        // fills of stages that were begun
  alignas(16) float bias[kMaxChannels];  // scaled as the epilogue wants it
  alignas(
      1024) unsigned char dynamic[16];  // weights, raw x, stages, slots of add, boxes of outputs
};
inline constexpr size_t kSharedHeader = offsetof(Shared, dynamic);

struct Parameters {
  CUtensorMap x_map;  // of x, where bulk is set
  // Where tiles are wide: of add at the outputs of a band, or of those outputs that leave in boxes.
  CUtensorMap output_maps[kMaxBands / 2];
  const void* x;
  const void* add;
  void* out;
  const unsigned char* weights;
  int64_t tile_weight_bytes;  // of a channel tile
  const float* bias;          // of all channel tiles, padded
  Epilogue epilogue;
  float gate_scale, gate_shift;  // of add_hardswish: clamp(t * scale + shift, 0, 1)

  int32_t n, ci, id, ih, iw;
  int32_t co, od, oh, ow;
  int64_t input_plane, output_plane;  // elements between channels
  int32_t stride_z, stride_y, stride_x;
  int32_t tile_x;     // base positions a tile advances along x: 8 or 16
  int32_t chunks;     // of input channels
  int32_t paired;     // outputs of the two accumulators are neighbours, aligned to two elements
  int32_t out_boxes;  // outputs leave in boxes
  // Boxes of x that bulk copies take, a slab's positions; where bulk is not set threads copy
  // elements.
  int32_t bulk, box_x, box_y, box_c;
  int32_t even_count;                // x has an even number of elements
  int32_t whole_words;               // every element of x lies in 4 aligned bytes that are x's own
  int32_t class_count, share_count;  // shares: class_count a channel tile
  int32_t first_block[kMaxShares + 1];  // blocks of the grid that serve a share
  Class classes[kMaxClasses];
  Band bands[kMaxBands];
  // Where engines share the samples: of each, pieces ranges, and whether kScaledEngine left some.
  Range* ranges;  // null: no sharing
  uint32_t* left_some;
  int32_t pieces;
  float weight_unscale;  // of kScaledEngine
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_LAYOUT_H_
