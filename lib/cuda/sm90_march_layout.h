// SPDX-License-Identifier: Apache-2.0
//
// What host and device of the marching kernel (sm90_march.cuh) agree on: sizes, the order of packed
// weights, parameters.
#ifndef VOLUP_CUDA_SM90_MARCH_LAYOUT_H_
#define VOLUP_CUDA_SM90_MARCH_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "cuda/mma_finish.cuh"

namespace volup::sm90_march {

inline constexpr int kGroups = 5;  // of a block: 20 warps of 96 registers a thread
inline constexpr int kGroupThreads = 128;
inline constexpr int kThreads = kGroups * kGroupThreads;
inline constexpr int kRows = 2;      // base rows of a group's column
inline constexpr int kColumns = 32;  // base positions along W of it
inline constexpr int kWarpColumns = 16;
inline constexpr int kOutChannels = 16;
inline constexpr int kMaxInChannels = 3;
inline constexpr int kConstantBytes = 64;  // a lane reads at most 40 of them

// A tile is the weights of one product: 32 columns by 8 of K, in wgmma's blocks of 8 columns by 4
// of K. There is one for each tap of D (phase 0; phase 1, shared neighbour; phase 1, other), each
// unit of H (the same three) and each part.
inline constexpr int kTileElements = 32 * 8;
inline constexpr int kTiles = 3 * 3;  // of one part
VOLUP_HOST_DEVICE constexpr int tap_of(int phase, int neighbour) { return phase + neighbour; }
VOLUP_HOST_DEVICE constexpr int tile_of(int tap_z, int tap_y, int part, int parts) {
  return (tap_z * 3 + tap_y) * parts + part;
}
VOLUP_HOST_DEVICE constexpr int element_of_tile(int tile, int column, int k) {
  return tile * kTileElements + (column / 8 * 2 + k / 4) * 32 + column % 8 * 4 + k % 4;
}

// Column 8 j + 2 t + b is in lane t of a quad. There it belongs to phase t / 2 of W if j is even,
// to the other one if j is odd: a lane keeps what is its own and sends the rest to lane t ^ 2.
VOLUP_HOST_DEVICE constexpr int phase_of_column(int column) {
  return (column % 8 / 4) ^ (column / 8 % 2);
}
VOLUP_HOST_DEVICE constexpr int channel_of_column(int column) {
  return column / 8 * 4 + column % 4;
}
VOLUP_HOST_DEVICE constexpr int column_of_channel(int phase, int channel) {
  return channel / 4 * 8 + (phase ^ (channel / 4 % 2)) * 4 + channel % 4;
}

struct Parameters {
  const void* x;
  const float* weights;
  const std::byte* constants;  // kConstantBytes of the I/O type's 1, as many of 0
  int in_channels;
  int in_d, in_h, in_w;
  int out_d, out_h, out_w;
  int base_d;  // base positions along D: steps of a column
  int tiles_x, tiles_y;
  unsigned steps;         // of all columns
  int64_t out_sample;     // elements
  int direction;          // along D: toward the other neighbour
  int in_step;            // bytes to the next plane of x
  int out_step, out_row;  // bytes to the next step's outputs; from phase 0 along H to phase 1
  int offset_z[2], offset_y[2];  // of each neighbour
  int offset_x, shared_side;     // of the left neighbour along W; which is the shared one
  int residue_z[2], residue_y[2], residue_x[2];  // of each phase
  mma::FinishParameters finish;
};

}  // namespace volup::sm90_march

#endif  // VOLUP_CUDA_SM90_MARCH_LAYOUT_H_
