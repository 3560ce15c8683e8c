// SPDX-License-Identifier: Apache-2.0
//
// Device side of cuda/mma: a transposed convolution of any geometry and its epilogue on mma.sync
// TF32, one phase at a time, the values of x gathered from memory through the caches. The kernel
// for what the tiled ones do not take. mma_gather.cu is the host side.
//
//   block   n, a block of output channels, a phase, kWarps warps
//   warp    16 kRowTiles base positions, consecutive over (z, y, x), by all 8 kTiles channels of
//   the
//           block
#ifndef VOLUP_CUDA_MMA_GATHER_CUH_
#define VOLUP_CUDA_MMA_GATHER_CUH_

#include "cuda/mma_finish.cuh"
#include "cuda/mma_weights.h"

namespace volup::mma_gather {

using mma::WeightFragment;

inline constexpr int kWarps = 4;
inline constexpr int kLanes = 32;
inline constexpr int kDepth = 8;  // input channels of a step
inline constexpr int kMaxStride = 4;
inline constexpr int kMaxTaps = 16;  // of an axis

struct Axis {
  int in, out, base;  // base positions: the most that any phase has
  int stride;
  int first_tap[kMaxStride + 1];  // of each phase
  int offset[kMaxTaps];           // of each tap
};

struct Parameters {
  const void* x;
  const WeightFragment*
      weights;             // [channel block][taps][step][kTiles][kLanes], taps phase by phase
  const float* bias;       // [channel blocks x 8 kTiles]
  int in_channels, steps;  // steps of kDepth channels
  int channel_blocks;
  int groups_of_positions;  // kWarps x 16 kRowTiles base positions each
  int taps;                 // of all phases: every tap once
  Axis axis[3];
  mma::FinishParameters finish;
};

struct Position {
  int z, y, x;
};

__device__ inline Position position(const Parameters& p, int index) {
  const unsigned plane = static_cast<unsigned>(p.axis[1].base * p.axis[2].base);
  const unsigned z = static_cast<unsigned>(index) / plane;
  const unsigned rest = static_cast<unsigned>(index) - z * plane;
  const unsigned y = rest / static_cast<unsigned>(p.axis[2].base);
  return {static_cast<int>(z), static_cast<int>(y),
          static_cast<int>(rest - y * static_cast<unsigned>(p.axis[2].base))};
}

// What a warp computes.
struct Task {
  int n, channel_block;
  int phase[3];
  int first;        // base position of row 0 of lane 0
  int weight_base;  // first tap of the phase
};

__device__ inline Task task_of_warp(const Parameters& p, int positions) {
  Task task;
  unsigned rest = blockIdx.x;
  const int group = static_cast<int>(rest % p.groups_of_positions);
  rest /= p.groups_of_positions;
  const auto phases = static_cast<unsigned>(p.axis[0].stride * p.axis[1].stride * p.axis[2].stride);
  const unsigned phase = rest % phases;
  rest /= phases;
  task.channel_block = static_cast<int>(rest % p.channel_blocks);
  task.n = static_cast<int>(rest / p.channel_blocks);
  task.phase[2] = static_cast<int>(phase % p.axis[2].stride);
  task.phase[1] = static_cast<int>(phase / p.axis[2].stride % p.axis[1].stride);
  task.phase[0] = static_cast<int>(phase / p.axis[2].stride / p.axis[1].stride);
  task.first = (group * kWarps + static_cast<int>(threadIdx.x) / kLanes) * positions;
  // Taps lie in the order of (phase z, phase y, phase x), (tap z, tap y, tap x).
  const auto count = [&](int a, int begin, int end) {
    return p.axis[a].first_tap[end] - p.axis[a].first_tap[begin];
  };
  const int z = task.phase[0], y = task.phase[1], x = task.phase[2];
  task.weight_base =
      count(0, 0, z) * count(1, 0, p.axis[1].stride) * count(2, 0, p.axis[2].stride) +
      count(0, z, z + 1) * count(1, 0, y) * count(2, 0, p.axis[2].stride) +
      count(0, z, z + 1) * count(1, y, y + 1) * count(2, 0, x);
  return task;
}

// Calls body(tap of the phase, dz, dy, dx) for every tap of a phase.
template <typename Body>
__device__ inline void for_each_tap(const Parameters& p, const Task& task, const Body& body) {
  int tap = task.weight_base;
  const auto begin = [&](int a) { return p.axis[a].first_tap[task.phase[a]]; };
  const auto end = [&](int a) { return p.axis[a].first_tap[task.phase[a] + 1]; };
  for (int z = begin(0); z < end(0); ++z) {
    for (int y = begin(1); y < end(1); ++y) {
      for (int x = begin(2); x < end(2); ++x) {
        body(tap++, p.axis[0].offset[z], p.axis[1].offset[y], p.axis[2].offset[x]);
      }
    }
  }
}

// Element of channel 0 that a tap reads at a base position, or -1 outside.
__device__ inline int source(const Parameters& p, const Position& at, int dz, int dy, int dx) {
  const int z = at.z + dz, y = at.y + dy, x = at.x + dx;
  const bool inside = static_cast<unsigned>(z) < static_cast<unsigned>(p.axis[0].in) &&
                      static_cast<unsigned>(y) < static_cast<unsigned>(p.axis[1].in) &&
                      static_cast<unsigned>(x) < static_cast<unsigned>(p.axis[2].in);
  return inside ? (z * p.axis[1].in + y) * p.axis[2].in + x : -1;
}

__device__ inline int channel_elements(const Parameters& p) {
  return p.axis[0].in * p.axis[1].in * p.axis[2].in;
}

template <typename Io>
__device__ inline const Io* sample_of(const Parameters& p, const Task& task) {
  return static_cast<const Io*>(p.x) + int64_t{task.n} * p.in_channels * channel_elements(p);
}

// One logit by the definition, from global memory.
template <typename Io, int kTiles>
struct ExactLogit {
  const Parameters& p;
  const Task& task;

  __device__ __noinline__ float operator()(int r, int c) const {
    const Position at = position(p, task.first + 8 * r + threadIdx.x % kLanes / 4);
    const Io* const x = sample_of<Io>(p, task);
    float sum = p.bias[task.channel_block * 8 * kTiles + c];
    for_each_tap(p, task, [&](int tap, int dz, int dy, int dx) {
      const int from = source(p, at, dz, dy, dx);
      if (from < 0) return;
      for (int ci = 0; ci < p.in_channels; ++ci) {
        const int64_t fragment =
            (int64_t{task.channel_block} * p.taps + tap) * p.steps + ci / kDepth;
        const WeightFragment& w =
            p.weights[(fragment * kTiles + c / 8) * kLanes + c % 8 * 4 + ci % 4];
        const int half = ci % kDepth / 4;
        sum = fmaf(mma::to_float(x[from + int64_t{ci} * channel_elements(p)]),
                   w.high[half] + w.low[half], sum);
      }
    });
    return sum;
  }
};

// Element of the output of position row r, at the block's first channel.
struct OutputOffset {
  const Parameters& p;
  const Task& task;
  int channels;  // of the block

  __device__ int64_t operator()(int r) const {
    const Position at = position(p, task.first + 8 * r + threadIdx.x % kLanes / 4);
    const int z = at.z * p.axis[0].stride + task.phase[0];
    const int y = at.y * p.axis[1].stride + task.phase[1];
    const int x = at.x * p.axis[2].stride + task.phase[2];
    if (z >= p.axis[0].out || y >= p.axis[1].out || x >= p.axis[2].out) return -1;
    const int64_t plane = (int64_t{z} * p.axis[1].out + y) * p.axis[2].out + x;
    return plane + p.finish.channel_stride * sample_channel();
  }
  __device__ int64_t sample_channel() const {
    return int64_t{task.n} * channels + int64_t{task.channel_block} * block_channels;
  }
  int block_channels;
};

template <typename Io, bool kCompensated, EpilogueKind kKind, int kRowTiles, int kTiles>
__global__ void __launch_bounds__(kWarps* kLanes, 2)
    mma_gather(const __grid_constant__ Parameters p) {
  constexpr int kRows = 2 * kRowTiles;  // of a lane
  const Task task = task_of_warp(p, 16 * kRowTiles);
  const int lane = threadIdx.x % kLanes;
  const int g = lane / 4, t = lane % 4;
  const Io* const x = sample_of<Io>(p, task);
  const int channel = channel_elements(p);
  Position at[kRows];  // of each position row
#pragma unroll
  for (int r = 0; r < kRows; ++r) at[r] = position(p, task.first + 8 * r + g);

  // Products of the high parts, and the small terms apart: added once, rounded to nearest.
  float sums[kRowTiles][kTiles][4] = {}, small[kRowTiles][kTiles][4] = {};
  for_each_tap(p, task, [&](int tap, int dz, int dy, int dx) {
    int from[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) from[r] = source(p, at[r], dz, dy, dx);
    const WeightFragment* b =
        p.weights + (int64_t{task.channel_block} * p.taps + tap) * p.steps * (kTiles * kLanes) +
        lane;
#pragma unroll 1
    for (int step = 0; step < p.steps; ++step, b += kTiles * kLanes) {
      uint32_t a_high[kRowTiles][4], a_low[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        const int r = i / 2, half = i % 2;
        const int ci = step * kDepth + 4 * half + t;
        float value = 0;
        if (from[r] >= 0 && ci < p.in_channels) {
          value = mma::to_float(__ldg(x + (from[r] + int64_t{ci} * channel)));
        }
        float high = value, low = 0;
        if constexpr (sizeof(Io) == 4) mma::split(value, high, low);
        a_high[r / 2][2 * half + r % 2] = __float_as_uint(high);
        a_low[r / 2][2 * half + r % 2] = __float_as_uint(low);
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const float4 w = __ldg(reinterpret_cast<const float4*>(b + n * kLanes));
        const uint32_t high[2] = {__float_as_uint(w.x), __float_as_uint(w.y)};
        const uint32_t low[2] = {__float_as_uint(w.z), __float_as_uint(w.w)};
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          auto& d = sums[m][n];
          ptx::mma_m16n8k8_tf32(d, a_high[m], high[0], high[1], d);
          if constexpr (kCompensated) {
            auto& e = small[m][n];
            ptx::mma_m16n8k8_tf32(e, a_low[m], high[0], high[1], e);
            ptx::mma_m16n8k8_tf32(e, a_high[m], low[0], low[1], e);
          }
        }
      }
    }
  });

  const float* const bias = p.bias + task.channel_block * 8 * kTiles;
#pragma unroll
  for (int j = 0; j < 2 * kTiles; ++j) {
    const float b = __ldg(bias + mma::channel_of(j, t));
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float& v = mma::logit(sums, r, j);
      v = v + mma::logit(small, r, j) + b;
    }
  }
  mma::FinishParameters finish = p.finish;
  finish.channels = min(p.finish.channels - task.channel_block * 8 * kTiles, 8 * kTiles);
  // An output of one channel has no blocks.
  constexpr bool kOneChannel = kKind == EpilogueKind::kLogsumexpSwishClamp;
  const int out_channels = kOneChannel ? 1 : p.finish.channels;
  const OutputOffset offset = {p, task, out_channels, 8 * kTiles};
  const ExactLogit<Io, kTiles> exact = {p, task};
  mma::finish<Io, kKind>(sums, finish, offset, exact);
}

}  // namespace volup::mma_gather

#endif  // VOLUP_CUDA_MMA_GATHER_CUH_
