// SPDX-License-Identifier: Apache-2.0
//
// From a problem to what "cuda/sm90" launches: engine, class table, use of shared memory, packed
// weights, deal of blocks to classes. Pure functions on the host; no CUDA call.
#ifndef VOLUP_CUDA_SM90_PLAN_H_
#define VOLUP_CUDA_SM90_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/sm90_layout.h"
#include "kernel.h"

namespace volup::sm90 {

// What depends on the model, precision, I/O type and the squares of a tile, and not on sizes, but
// for whether outputs leave in boxes. Packed weights are the same bytes for one square and for two,
// with boxes and without.
struct Plan {
  Engine engine = Engine::kBf16x3;
  int weight_exponent = 0;  // of the greatest weight
  int channels = 64;        // kN
  int chunks = 1;
  int element = 4;  // bytes of the I/O type
  int channel_tiles = 1;
  // With stride 1: one accumulator, for slabs that would be too large with two.
  bool narrow = false;
  int squares = 1;         // of a tile
  bool add_slots = false;  // add comes through slots
  bool out_boxes = false;  // outputs leave in boxes
  bool bulk = false;       // x may come by bulk copies, of boxes of this size
  int box_x = 0, box_y = 0;
  std::vector<Class> classes;
  std::vector<Band> bands;
  int64_t tile_weight_bytes = 0;  // of a channel tile
  size_t shared_bytes = 0;

  // Whether taps of both accumulators that read the same positions are one step, whose products
  // find x by one address. With several products of parts that gains nothing.
  bool joins_steps() const { return engine == Engine::kBf16x1 || engine == Engine::kFp16x1; }

  // Offsets in the packed bytes.
  size_t bias_at() const { return 0; }
  size_t weights_at() const {
    return bias_at() + round_up(static_cast<size_t>(channel_tiles) * channels * sizeof(float));
  }
  size_t packed_bytes() const {
    return weights_at() + static_cast<size_t>(channel_tiles * tile_weight_bytes);
  }

 private:
  static size_t round_up(size_t bytes) { return (bytes + 255) / 256 * 256; }
};

// Why the kernel cannot take the problem: with tiles of one square, of two.
Refusal refuse(const Problem& problem, const DeviceProperties& device);
Refusal refuse_wide(const Problem& problem, const DeviceProperties& device);

// The engine that serves the problem; kScaledEngine shares its samples with kUnscaledEngine.
Engine engine_of(const Problem& problem, const DeviceProperties& device);

// Pieces of a sample of x whose ranges are measured, where engines share samples.
int pieces_of(const Problem& problem);
// Most elements of one, a multiple of 4: pieces start as aligned as samples do.
constexpr int64_t piece_length(int64_t sample, int64_t pieces) {
  return (sample + 4 * pieces - 1) / (4 * pieces) * 4;
}

// Of a problem that is not refused.
Plan make_plan(const Problem& problem, Engine engine, int squares, const DeviceProperties& device);

// Tiles of all bands and channel tiles.
int64_t tiles_of(const Plan& plan, const Problem& problem, const DeviceProperties& device);

Result<std::vector<std::byte>> pack(const Plan& plan, const Model& model);

// Launch parameters but for the pointers; *blocks is the grid's size.
Parameters make_parameters(const Plan& plan, const Problem& problem, const DeviceProperties& device,
                           int* blocks);

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_PLAN_H_
