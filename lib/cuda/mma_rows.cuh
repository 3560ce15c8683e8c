// SPDX-License-Identifier: Apache-2.0
//
// Device side of cuda/mma-rows: a transposed convolution with few input channels and at most 16
// output channels, and its epilogue, on mma.sync TF32. mma_rows.cu is the host side.
//
// Along H and along W the stride is 2, one phase has one tap and the other two, and the one tap
// reads a neighbour that the two read as well: neighbour 0 is the shared one, 1 the other. So four
// neighbours (y, x) in registers feed all four phases (y, x) of 32 positions. D is table data.
//
//   block   n, one base z, a tile of rows base rows by 32 base x
//   warp    a row, a phase of D and a phase of H at a time: 32 positions x 2 phases x 16 channels
//   shared  the weights, and the tile of x with its halo, each value split in two TF32 parts
//
// The channel after the last input channel is the constant 1, its weight the bias.
#ifndef VOLUP_CUDA_MMA_ROWS_CUH_
#define VOLUP_CUDA_MMA_ROWS_CUH_

#include <type_traits>

#include "cuda/mma_finish.cuh"
#include "cuda/mma_weights.h"

namespace volup::mma_rows {

using mma::WeightFragment;

inline constexpr int kWarps = 8;
inline constexpr int kLanes = 32;
inline constexpr int kThreads = kWarps * kLanes;
inline constexpr int kBlocks = 3;            // of a multiprocessor
inline constexpr int kBaseX = 32;            // base positions along W of a tile
inline constexpr int kColumns = kBaseX + 1;  // with the halo
inline constexpr int kTiles = 2;             // n8 tiles of output channels
inline constexpr int kQuad = 4;              // input channels that share 16 bytes
inline constexpr int kMaxPhases = 4;         // along D
inline constexpr int kMaxTaps = 8;           // along D, all phases
inline constexpr int kLoadBatch = 5;         // positions that a thread has in flight

// A unit is a fragment of weights: a phase, and a neighbour for each of two k halves (unit 0 has
// one neighbour). Phases and neighbours count as 2 y + x. Two neighbours in one row make a product
// of depth 8, one alone a product of depth 4, from the same fragments of x.
struct Unit {
  int phase;
  int neighbour[2];
};
inline constexpr int kUnits = 5;
VOLUP_HOST_DEVICE constexpr Unit unit(int u) {
  return u == 0   ? Unit{0, {0, 0}}
         : u == 1 ? Unit{1, {0, 1}}
         : u == 2 ? Unit{2, {0, 2}}
         : u == 3 ? Unit{3, {0, 1}}
                  : Unit{3, {2, 3}};
}
// The unit of phase (y, 0), whose k half h is neighbour row h, and that of (y, 1) on a row.
VOLUP_HOST_DEVICE constexpr int narrow_unit(int phase_y) { return 2 * phase_y; }
VOLUP_HOST_DEVICE constexpr int wide_unit(int phase_y, int neighbour_y) {
  return phase_y == 0 ? 1 : 3 + neighbour_y;
}

struct Parameters {
  const void* x;
  const WeightFragment* weights;  // [D tap][quad][kUnits][kTiles][kLanes]
  int in_channels, quads;
  int in_d, in_h, in_w;
  int out_d, out_h, out_w;
  int rows;  // base rows of a tile
  int tiles_x, tiles_y, tiles_z;
  int64_t out_sample;  // elements
  // D: phases, their taps, the planes (distinct offsets) that the taps read.
  int stride_d, taps, planes;
  int first_tap[kMaxPhases + 1];
  int tap_plane[kMaxTaps];
  unsigned empty_taps;  // bit of each tap that stands for none
  int plane_offset[kMaxTaps];
  // H and W: offset of the halo's first line; line of each neighbour; output residue of each phase.
  int origin_y, origin_x;
  int neighbour_y[2], neighbour_x[2];
  int residue_y[2], residue_x[2];
  mma::FinishParameters finish;
};

// The one layout of shared memory: weights, then the high and the low parts of x, each
// [quad][plane][line][column] of kQuad floats.
struct SharedLayout {
  int weights;    // fragments
  int lines;      // rows and the halo
  int positions;  // of one quad

  VOLUP_HOST_DEVICE explicit SharedLayout(const Parameters& p)
      : weights(p.taps * p.quads * kUnits * kTiles * kLanes),
        lines(p.rows + 1),
        positions(p.planes * lines * kColumns) {}
  VOLUP_HOST_DEVICE int line(int quad, int plane, int y) const {
    return quad * positions + (plane * lines + y) * kColumns;
  }
  VOLUP_HOST_DEVICE int64_t part_bytes(int quads) const {
    return int64_t{quads} * positions * kQuad * 4;
  }
  VOLUP_HOST_DEVICE int64_t bytes(int quads) const {
    return int64_t{weights} * int64_t{sizeof(WeightFragment)} + 2 * part_bytes(quads);
  }
};

struct Tile {
  int n;
  int z, y, x;  // first base position
};

__device__ inline Tile tile_of_block(const Parameters& p) {
  unsigned rest = blockIdx.x;
  Tile tile;
  tile.x = static_cast<int>(rest % p.tiles_x) * kBaseX;
  rest /= p.tiles_x;
  tile.y = static_cast<int>(rest % p.tiles_y) * p.rows;
  rest /= p.tiles_y;
  tile.z = static_cast<int>(rest % p.tiles_z);
  tile.n = static_cast<int>(rest / p.tiles_z);
  return tile;
}

// One logit by the definition, from global memory.
template <typename Io, bool kCompensated>
struct ExactLogit {
  const Parameters& p;
  Tile tile;
  int y, phase_z, phase;

  __device__ __noinline__ float operator()(int r, int c) const {
    const int x = tile.x + 8 * r + threadIdx.x % kLanes / 4;
    const int64_t plane = int64_t{p.in_h} * p.in_w;
    float sum = 0;
    for (int tap = p.first_tap[phase_z]; tap < p.first_tap[phase_z + 1]; ++tap) {
      const int iz = tile.z + p.plane_offset[p.tap_plane[tap]];
      for (int ci = 0; ci <= p.in_channels; ++ci) {
        const bool constant = ci == p.in_channels;
        for (int u = 0; u < kUnits; ++u) {
          if (unit(u).phase != phase) continue;
          const WeightFragment& w =
              p.weights[(((tap * p.quads + ci / kQuad) * kUnits + u) * kTiles + c / 8) * kLanes +
                        c % 8 * 4 + ci % kQuad];
          for (int half = 0; half < 2; ++half) {
            if (constant) {
              sum += w.high[half] + w.low[half];
              continue;
            }
            if ((u == 0 && half == 1) || (p.empty_taps >> tap & 1) != 0) continue;
            const int neighbour = unit(u).neighbour[half];
            const int iy = y + p.origin_y + p.neighbour_y[neighbour / 2];
            const int ix = x + p.origin_x + p.neighbour_x[neighbour % 2];
            if (static_cast<unsigned>(iz) >= static_cast<unsigned>(p.in_d) ||
                static_cast<unsigned>(iy) >= static_cast<unsigned>(p.in_h) ||
                static_cast<unsigned>(ix) >= static_cast<unsigned>(p.in_w)) {
              continue;
            }
            const int64_t at = ((int64_t{tile.n} * p.in_channels + ci) * p.in_d + iz) * plane +
                               int64_t{iy} * p.in_w + ix;
            const float value = mma::to_float(static_cast<const Io*>(p.x)[at]);
            sum = fmaf(value, w.high[half] + w.low[half], sum);
          }
        }
      }
    }
    return sum;
  }
};

// Elements of the output of a phase of a row of base positions.
struct RowOffset {
  int64_t row;
  int x, width;
  __device__ int64_t operator()(int r) const {
    const int at = x + 16 * r;
    return at < width ? row + at : -1;
  }
};

using Sums = float[2][2][kTiles][4];  // [phase x][m16 tile][n8 tile][fragment]

// Logsumexp of both phases x of a row at once. Lane t of a quad ends with phase t % 2 of position
// rows 2 (t / 2) and the next, so that a store fills whole sectors of the output.
template <typename Io, typename ExactOfPhase>
__device__ inline void finish_row(Sums& sums, const Parameters& p, int64_t row, int tile_x,
                                  const ExactOfPhase& exact) {
  const int t = threadIdx.x % 4;
  float total[2], gated[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    total[i] = mma::quad_transpose_sum(mma::partial_sum(sums[0], i), mma::partial_sum(sums[1], i),
                                       mma::partial_sum(sums[0], 2 + i),
                                       mma::partial_sum(sums[1], 2 + i), t);
    gated[i] = mma::gated_of_sum(total[i], p.finish);
  }
  const bool all_proven = mma::proven(total[0], p.finish) && mma::proven(total[1], p.finish);
  if (__any_sync(mma::kWholeWarp, !all_proven)) {
    float careful[2] = {};
#pragma unroll
    for (int phase = 0; phase < 2; ++phase) {
      mma::repair_if_needed(sums[phase], p.finish.channels, exact(phase));
      mma::drop_missing_channels(sums[phase], p.finish.channels);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float log2_sum = mma::careful_log2_sum(sums[phase], r);
        if (t == phase + 2 * (r / 2)) careful[r % 2] = log2_sum;
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!mma::proven(total[i], p.finish)) gated[i] = mma::gated_of_log2(careful[i], p.finish);
    }
  }
  const int x = 2 * (tile_x + static_cast<int>(threadIdx.x) % kLanes / 4 + t / 2 * 16) +
                (t % 2 == 0 ? p.residue_x[0] : p.residue_x[1]);
  Io* const out = static_cast<Io*>(p.finish.out) + (row + x);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (x + 16 * i < p.out_w) {
      out[16 * i] = mma::from_float<Io>(mma::subtract_and_clamp(gated[i], p.finish));
    }
  }
}

template <typename Io, bool kCompensated, EpilogueKind kKind>
__global__ void __launch_bounds__(kThreads, kBlocks)
    mma_rows(const __grid_constant__ Parameters p) {
  extern __shared__ float4 shared[];
  const SharedLayout layout(p);
  WeightFragment* const weights = reinterpret_cast<WeightFragment*>(shared);
  float4* const high = shared + layout.weights;
  float4* const low = high + p.quads * layout.positions;
  const int warp = threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const Tile tile = tile_of_block(p);

  const auto load_weights = [&] {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(weights));
    for (int i = threadIdx.x; i < layout.weights; i += kThreads) {
      ptx::copy_async_16(address + i * 16, p.weights + i);
    }
  };

  // A warp a line: columns 0 to 31; then the last column of all lines, a lane each.
  const auto load_x = [&] {
    const int64_t channel = int64_t{p.in_d} * p.in_h * p.in_w;
    const Io* const sample =
        static_cast<const Io*>(p.x) + int64_t{tile.n} * p.in_channels * channel;
    const int lines = p.planes * layout.lines;
    const int origin_y = tile.y + p.origin_y, origin_x = tile.x + p.origin_x;
    const int64_t step = ptx::keep(channel);

    for (int quad = 0; quad < p.quads; ++quad) {
      const int channels = p.in_channels - quad * kQuad;  // of this quad; then the constant
      const Io* const first_line = ptx::keep(sample + quad * kQuad * channel + origin_x);
      const auto fetch = [&](float(&value)[kQuad], int depth, int y, int column) {
        const int iz = tile.z + p.plane_offset[depth];
        const int iy = origin_y + y;
#pragma unroll
        for (int i = 0; i < kQuad; ++i) value[i] = i == channels ? 1.0f : 0.0f;
        if (static_cast<unsigned>(iz) < static_cast<unsigned>(p.in_d) &&
            static_cast<unsigned>(iy) < static_cast<unsigned>(p.in_h) &&
            static_cast<unsigned>(origin_x + column) < static_cast<unsigned>(p.in_w)) {
          const Io* source = first_line + (int64_t{iz * p.in_h + iy} * p.in_w + column);
#pragma unroll
          for (int i = 0; i < kQuad; ++i, source += step) {
            if (i < channels) value[i] = mma::to_float(__ldg(source));
          }
        }
      };
      const auto store = [&](const float(&value)[kQuad], int line, int column) {
        float part[2][kQuad];
#pragma unroll
        for (int i = 0; i < kQuad; ++i) {
          part[0][i] = value[i], part[1][i] = 0;
          if constexpr (sizeof(Io) == 4) mma::split(value[i], part[0][i], part[1][i]);
        }
        const int at = quad * layout.positions + line * kColumns + column;
        high[at] = make_float4(part[0][0], part[0][1], part[0][2], part[0][3]);
        if constexpr (kCompensated) {
          low[at] = make_float4(part[1][0], part[1][1], part[1][2], part[1][3]);
        }
      };

      float value[kLoadBatch][kQuad];
      int depth = 0, y = warp;  // line = depth * layout.lines + y
      for (int first = warp; first < lines; first += kLoadBatch * kWarps) {
#pragma unroll
        for (int b = 0; b < kLoadBatch; ++b, y += kWarps) {
          while (y >= layout.lines) y -= layout.lines, ++depth;
          if (first + b * kWarps < lines) fetch(value[b], depth, y, lane);
        }
#pragma unroll
        for (int b = 0; b < kLoadBatch; ++b) {
          if (first + b * kWarps < lines) store(value[b], first + b * kWarps, lane);
        }
      }
      depth = 0, y = threadIdx.x;
      for (int line = y; line < lines; line += kThreads, y += kThreads) {
        while (y >= layout.lines) y -= layout.lines, ++depth;
        fetch(value[0], depth, y, kBaseX);
        store(value[0], line, kBaseX);
      }
    }
  };

  // Fragments of two neighbours along W, one in each k half: matrix i of ldmatrix is neighbour
  // i / 2, positions 8 (i % 2) and on.
  const uint32_t lane_address = static_cast<uint32_t>(__cvta_generic_to_shared(high)) +
                                (p.neighbour_x[lane / 16] + lane % 16) * (kQuad * 4);
  const uint32_t low_bytes = static_cast<uint32_t>(layout.part_bytes(p.quads));

  // sums += products of one tap of D and one quad of channels for phase_y, small terms first.
  const auto multiply = [&](auto phase_y, Sums& sums, int tap, int quad, int row) {
    constexpr int kPhaseY = decltype(phase_y)::value;
    const float4* const b = reinterpret_cast<const float4*>(weights) +
                            (tap * p.quads + quad) * (kUnits * kTiles * kLanes) + lane;
#pragma unroll
    for (int y = 0; y <= kPhaseY; ++y) {      // rows of neighbours
      uint32_t a_high[2][4];                  // [m16 tile]
      [[maybe_unused]] uint32_t a_low[2][4];  // of compensated products alone
      const int line = layout.line(quad, p.tap_plane[tap], row + p.neighbour_y[y]);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const uint32_t address = lane_address + (line + 16 * m) * (kQuad * 4);
        ptx::ldmatrix_x4(a_high[m], address);
        if constexpr (kCompensated) ptx::ldmatrix_x4(a_low[m], address + low_bytes);
      }
#pragma unroll
      for (int phase_x = 0; phase_x < 2; ++phase_x) {
        const int u = phase_x == 0 ? narrow_unit(kPhaseY) : wide_unit(kPhaseY, y);
        // Uncompensated, unit 0 keeps the bias' low part in its second k half.
        const bool deep = phase_x == 1 || (u == 0 && !kCompensated);
        uint32_t high[kTiles][2], low[kTiles][2];
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          const float4 w = b[(u * kTiles + n) * kLanes];
          high[n][0] = __float_as_uint(deep ? w.x : y == 0 ? w.x : w.y);
          high[n][1] = __float_as_uint(w.y);
          low[n][0] = __float_as_uint(deep ? w.z : y == 0 ? w.z : w.w);
          low[n][1] = __float_as_uint(w.w);
        }
        // The four tiles side by side: each waits for its own last product.
        const auto product = [&](const uint32_t(&a)[2][4], const uint32_t(&w)[kTiles][2]) {
#pragma unroll
          for (int i = 0; i < 2 * kTiles; ++i) {
            const int m = i % 2, n = i / 2;
            auto& d = sums[phase_x][m][n];
            if (deep) {
              ptx::mma_m16n8k8_tf32(d, a[m], w[n][0], w[n][1], d);
            } else {
              ptx::mma_m16n8k4_tf32(d, a[m][0], a[m][1], w[n][0], d);
            }
          }
        };
        if constexpr (kCompensated) {
          product(a_low, high);
          product(a_high, low);
        }
        product(a_high, high);
      }
    }
  };

  const auto compute_row = [&](auto phase_y, int phase_z, int row) {
    constexpr int kPhaseY = decltype(phase_y)::value;
    const int z = tile.z * p.stride_d + phase_z;
    const int y = tile.y + row;
    const int out_y = 2 * y + p.residue_y[kPhaseY];
    if (z >= p.out_d || out_y >= p.out_h) return;

    Sums sums = {};
    const int first = p.first_tap[phase_z], end = p.first_tap[phase_z + 1];
    for (int tap = first; tap < end; ++tap) {
      for (int quad = 0; quad < p.quads; ++quad) multiply(phase_y, sums, tap, quad, row);
    }

    const int64_t out_row =
        int64_t{tile.n} * p.out_sample + (int64_t{z} * p.out_h + out_y) * p.out_w;
    const auto exact = [&](int phase_x) {
      return ExactLogit<Io, kCompensated>{p, tile, y, phase_z, 2 * kPhaseY + phase_x};
    };
    if constexpr (kKind == EpilogueKind::kLogsumexpSwishClamp) {
      finish_row<Io>(sums, p, out_row, tile.x, exact);
    } else {
#pragma unroll
      for (int phase_x = 0; phase_x < 2; ++phase_x) {
        const RowOffset offset = {out_row, 2 * (tile.x + lane / 4) + p.residue_x[phase_x], p.out_w};
        mma::finish<Io, kKind>(sums[phase_x], p.finish, offset, exact(phase_x));
      }
    }
  };

  load_weights();
  load_x();
  ptx::wait_for_copies();
  __syncthreads();
  for (int phase_z = 0, row = warp; phase_z < p.stride_d; row += kWarps) {
    for (; row >= 2 * p.rows; row -= 2 * p.rows) ++phase_z;
    if (phase_z >= p.stride_d) break;
    if (row < p.rows) {
      compute_row(std::integral_constant<int, 0>(), phase_z, row);
    } else {
      compute_row(std::integral_constant<int, 1>(), phase_z, row - p.rows);
    }
  }
}

}  // namespace volup::mma_rows

#endif  // VOLUP_CUDA_MMA_ROWS_CUH_
