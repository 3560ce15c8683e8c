// SPDX-License-Identifier: Apache-2.0
//
// Kernel "cuda/sm90-march", device side: a transposed convolution with at most 3
// input and 16 output channels, every axis of stride 2 with one tap in one phase and two in the
// other, and logsumexp or nothing behind it. Products by wgmma TF32; x goes from global memory
// straight into fragments. sm90_march.cu is the host side.
//
//   group    4 warps; columns of base positions, 2 rows by 32 along W, a step along D at a time
//   warp     16 positions of a step and all 8 phases: loads and splits each plane of x once
//   shared   the weights and nothing else: groups do not wait for one another on the way
//
// Along each axis neighbour 0 is the one that both phases read, 1 the other. K of a product is the
// left and the right neighbour along W by 4 channels; the channel after the last is the constant 1,
// its weight the bias. Its columns are both phases along W by 16 channels.
#ifndef VOLUP_CUDA_SM90_MARCH_CUH_
#define VOLUP_CUDA_SM90_MARCH_CUH_

#include <type_traits>

#include "cuda/ptx.h"
#include "cuda/ptx_march.h"
#include "cuda/sm90_march_exact.cuh"
#include "cuda/sm90_march_layout.h"
#include "cuda/sm90_march_sums.cuh"

namespace volup::sm90_march {

// A warp's positions: the first of 16.
struct Column {
  int n, y, x;
};

// Element i of a fragment is row g + 8 (i % 2), neighbour left or right: how far from the left
// neighbour of row g that is.
__device__ inline constexpr int distance_of(int i) { return i % 2 * 8 + i / 2; }

// A plane of x at both neighbours along H.
template <int kXParts>
struct Fragments {
  uint32_t high[2][4];
  uint32_t low[kXParts == 2 ? 2 : 1][4];
};

__device__ inline Column column_of_step(const Parameters& p, unsigned step, int warp) {
  unsigned rest = step / p.base_d;
  Column at;
  at.x = static_cast<int>(rest % p.tiles_x) * kColumns + warp % 2 * kWarpColumns;
  rest /= p.tiles_x;
  at.y = static_cast<int>(rest % p.tiles_y) * kRows + warp / 2;
  at.n = static_cast<int>(rest / p.tiles_y);
  return at;
}

// The march visits z so that the other plane of a step is the shared one of the next.
__device__ inline int z_of_step(const Parameters& p, unsigned step) {
  const int turn = static_cast<int>(step % p.base_d);
  return p.direction > 0 ? turn : p.base_d - 1 - turn;
}

// The steps of a group.
struct Steps {
  unsigned begin, end;
};

// By a group: its steps, one after the other. await_weights is called once, when the first loads of
// x are under way. kClean: x that is not finite counts as 0, and what is NaN in memory is written
// where no tap reads such x. Whether an output of this lane came out NaN.
// kXParts: TF32 parts of x; kParts: of weights, which begin at the address in shared memory.
template <typename Io, int kXParts, int kParts, EpilogueKind kKind, bool kClean,
          typename AwaitWeights>
__device__ inline bool march(const Parameters& p, uint32_t weights, const Steps& steps,
                             const AwaitWeights& await_weights) {
  constexpr bool kLogsumexp = kKind == EpilogueKind::kLogsumexpSwishClamp;
  // Where one product is enough, special functions bind; in the others the FMA units have no room.
  constexpr bool kShareExponentials = kParts == 1;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4, t = lane % 4;
  const int warp = __shfl_sync(mma::kWholeWarp, threadIdx.x / 32 % 4, 0);  // of the group
  const uint32_t descriptor = ptx::matrix_descriptor_low(weights);
  bool came_out_nan = false;

  // sums[phase along H] (+)= a plane times one part of the weights of a tap of D.
  const auto multiply = [&](auto accumulate, float(&sums)[2][16], const uint32_t(&a)[2][4], int tap,
                            int part) {
    constexpr bool kAccumulate = decltype(accumulate)::value;
    const auto tile = [&](int tap_y) {
      return ptx::matrix_descriptor(descriptor +
                                    tile_of(tap, tap_y, part, kParts) * (kTileElements * 4 / 16));
    };
    ptx::wgmma_m64n32k8_tf32<kAccumulate>(sums[1], a[0], tile(1));
    ptx::wgmma_m64n32k8_tf32<kAccumulate>(sums[0], a[0], tile(0));
    ptx::wgmma_m64n32k8_tf32<true>(sums[1], a[1], tile(2));
  };
  // sums = products of the planes of a phase along D, small terms first.
  const auto start_products = [&](float(&sums)[2][16], const auto&... planes) {
    ptx::hold(sums[0]), ptx::hold(sums[1]);
    ptx::wgmma_fence();
    const auto pass = [&](auto accumulate, int part, const uint32_t(&first)[2][4],
                          const auto&... more) {
      constexpr int kFirstTap = sizeof...(more);  // of a phase with as many neighbours
      multiply(accumulate, sums, first, kFirstTap, part);
      (multiply(std::true_type(), sums, more, kFirstTap + 1, part), ...);
    };
    if constexpr (kXParts == 2) {
      pass(std::false_type(), 0, planes.low...);
      pass(std::true_type(), 1, planes.high...);
      pass(std::true_type(), 0, planes.high...);
    } else if constexpr (kParts == 2) {
      pass(std::false_type(), 1, planes.high...);
      pass(std::true_type(), 0, planes.high...);
    } else {
      pass(std::false_type(), 0, planes.high...);
    }
    ptx::wgmma_commit();
  };
  const auto finish_products = [&](float(&sums)[2][16]) {
    ptx::wgmma_wait<0>();
    ptx::hold(sums[0]), ptx::hold(sums[1]);
  };

  const int64_t in_plane = int64_t{p.in_h} * p.in_w;
  const int64_t out_plane = int64_t{p.out_h} * p.out_w;
  for (unsigned step = steps.begin; step < steps.end;) {
    const Column at = column_of_step(p, step, warp);
    const unsigned column_end = min(steps.end, (step / p.base_d + 1) * p.base_d);
    int z = z_of_step(p, step);

    // Loads: this lane's channel, left neighbour of row g, for both neighbours along H. Lanes
    // without a channel read the constants behind the weights, as do rows outside: zeros.
    const bool has_channel = t < p.in_channels;
    const int ix = at.x + p.offset_x + g;
    int plane = z + p.offset_z[0];
    const std::byte* source[2];
    int source_step[2];
#pragma unroll
    for (int y = 0; y < 2; ++y) {
      const int iy = at.y + p.offset_y[y];
      const bool row_there = static_cast<unsigned>(iy) < static_cast<unsigned>(p.in_h);
      source[y] = has_channel && row_there
                      ? static_cast<const std::byte*>(p.x) +
                            (((int64_t{at.n} * p.in_channels + t) * p.in_d + plane) * in_plane +
                             int64_t{iy} * p.in_w + ix) *
                                int64_t{sizeof(Io)}
                      : p.constants + (t == p.in_channels ? 0 : kConstantBytes);
      source_step[y] = has_channel && row_there ? p.in_step : 0;
    }
    unsigned there = 0;  // bit i: element i is inside, or constant
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!has_channel ||
          static_cast<unsigned>(ix + distance_of(i)) < static_cast<unsigned>(p.in_w)) {
        there |= 1u << i;
      }
    }
    Io raw[2][4];
    const auto load_plane = [&] {
      const bool plane_there = static_cast<unsigned>(plane) < static_cast<unsigned>(p.in_d);
      const unsigned mask = plane_there || !has_channel ? there : 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int y = 0; y < 2; ++y) {
          raw[y][i] = mma::from_float<Io>(0.0f);
          if (mask & 1u << i) {
            raw[y][i] = __ldg(reinterpret_cast<const Io*>(source[y]) + distance_of(i));
          }
        }
      }
      source[0] = ptx::keep(source[0] + source_step[0]);
      source[1] = ptx::keep(source[1] + source_step[1]);
      plane += p.direction;
    };
    const auto split_plane = [&](Fragments<kXParts>& fragments) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        float high = mma::to_float(raw[k / 4][k % 4]);
        if (kClean && !isfinite(high)) high = 0;
        if constexpr (kXParts == 2) {
          // To nearest: with the high part cut off instead, what low x low leaves out shows in
          // outputs of few products.
          float low;
          mma::split(high, high, low);
          fragments.low[k / 4][k % 4] = __float_as_uint(low);
        } else if constexpr (sizeof(Io) == 4) {
          high = ptx::round_to_tf32(high);
        }
        fragments.high[k / 4][k % 4] = __float_as_uint(high);
      }
    };

    // Stores: this lane's output of phase 0 along H, for both phases along D.
    const int out_y = 2 * at.y, out_x = 2 * (at.x + g + 8 * (t % 2)) + p.residue_x[t / 2];
    std::byte* target[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      target[i] = static_cast<std::byte*>(p.finish.out) +
                  (at.n * p.out_sample + (2 * z + p.residue_z[i]) * out_plane +
                   int64_t{out_y + p.residue_y[0]} * p.out_w + out_x) *
                      int64_t{sizeof(Io)};
    }
    const bool written[2] = {out_x < p.out_w && out_y + p.residue_y[0] < p.out_h,
                             out_x < p.out_w && out_y + p.residue_y[1] < p.out_h};

    const auto store = [&](std::byte* out, float value, const Place& place) {
      if (kClean && (!isnan(mma::to_float(*reinterpret_cast<const Io*>(out))) ||
                     !reads_finite_values<Io>(p, place))) {
        return;
      }
      ptx::store_global(out, mma::from_float<Io>(value));
    };
    const auto write_logsumexp = [&](float(&sums)[2][16], int phase_z) {
      float total[2], gated[2];
#pragma unroll
      for (int y = 0; y < 2; ++y) {
        total[y] = channel_sum<kShareExponentials>(sums[y]);
        gated[y] = mma::gated_of_sum(total[y], p.finish);
      }
      const bool fine[2] = {mma::proven(total[0], p.finish), mma::proven(total[1], p.finish)};
      if (__any_sync(mma::kWholeWarp, !(fine[0] & fine[1]))) {
#pragma unroll
        for (int y = 0; y < 2; ++y) {
          const float log2_sum = careful_log2_sum(sums[y], p.finish.channels);
          if (!fine[y]) gated[y] = mma::gated_of_log2(log2_sum, p.finish);
          came_out_nan = came_out_nan || isnan(gated[y]);
        }
      }
#pragma unroll
      for (int y = 0; y < 2; ++y) {
        std::byte* const out = target[phase_z] + (y == 0 ? 0 : p.out_row);
        const float value = mma::subtract_and_clamp(gated[y], p.finish);
        if (written[y]) {
          store(out, value, {at.n, z, at.y, at.x + g + 8 * (t % 2), phase_z, y, t / 2});
        }
      }
    };
    const auto write_logits = [&](const float(&sums)[2][16], int phase_z) {
#pragma unroll
      for (int k = 0; k < 32; ++k) {
        const int y = k / 16, i = k % 16;
        const int c = channel_of_column(column_of(i)), phase_x = phase_of_column(column_of(i));
        const int base_x = at.x + g + 8 * half_of(i);
        const int x = 2 * base_x + p.residue_x[phase_x];
        if (c >= p.finish.channels || x >= p.out_w || out_y + p.residue_y[y] >= p.out_h) continue;
        const float value = isfinite(sums[y][i]) ? sums[y][i] : NAN;
        came_out_nan = came_out_nan || isnan(value);
        store(target[phase_z] + (y == 0 ? 0 : p.out_row) +
                  (c * p.finish.channel_stride + (x - out_x)) * int64_t{sizeof(Io)},
              value, {at.n, z, at.y, base_x, phase_z, y, phase_x});
      }
    };
    const auto write = [&](float(&sums)[2][16], int phase_z) {
      if (2 * z + p.residue_z[phase_z] >= p.out_d) return;
      if constexpr (kLogsumexp) {
        write_logsumexp(sums, phase_z);
      } else {
        write_logits(sums, phase_z);
      }
      if constexpr (kClean) __syncwarp();  // store() may have taken the lanes apart
    };

    const auto take_step = [&](const Fragments<kXParts>& shared, Fragments<kXParts>& other) {
      float sums[2][16];  // [phase along H]
      start_products(sums, shared);
      split_plane(other);
      finish_products(sums);
      write(sums, 0);
      start_products(sums, shared, other);
      load_plane();
      finish_products(sums);
      write(sums, 1);
      target[0] = ptx::keep(target[0] + p.out_step);
      target[1] = ptx::keep(target[1] + p.out_step);
      z += p.direction;
      ++step;
    };

    Fragments<kXParts> planes[2];
    load_plane();
    await_weights();
    split_plane(planes[0]);
    load_plane();
    while (true) {
      take_step(planes[0], planes[1]);
      if (step == column_end) break;
      take_step(planes[1], planes[0]);
      if (step == column_end) break;
    }
  }
  return came_out_nan;
}

// Outputs that came out NaN. A NaN or an infinity in x shows in sums that read it with weight 0
// too: the bits of those must be as if it had been finite. The others by chains of FMA.
template <typename Io, int kXParts, int kParts, EpilogueKind kKind>
__device__ inline void repair(const Parameters& p, uint32_t weights, Steps steps) {
  constexpr bool kLogsumexp = kKind == EpilogueKind::kLogsumexpSwishClamp;
  march<Io, kXParts, kParts, kKind, true>(p, weights, steps, [] {});
  const int lane = threadIdx.x % 32;
  const int g = lane / 4, t = lane % 4;
  const int warp = __shfl_sync(mma::kWholeWarp, threadIdx.x / 32 % 4, 0);  // of the group
  const int64_t out_plane = int64_t{p.out_h} * p.out_w;
  for (unsigned step = steps.begin; step < steps.end; ++step) {
    const Column column = column_of_step(p, step, warp);
    for (int k = 0; k < 4 * 16; ++k) {
      const int i = k % 16;
      if (kLogsumexp && i > 0) continue;
      Place at = {column.n, z_of_step(p, step), column.y, column.x + g, k / 32, k / 16 % 2, t / 2};
      int c = 0;
      if constexpr (kLogsumexp) {
        at.x += 8 * (t % 2);
      } else {
        at.x += 8 * half_of(i);
        at.phase_x = phase_of_column(column_of(i));
        c = channel_of_column(column_of(i));
      }
      const int out_z = 2 * at.z + p.residue_z[at.phase_z];
      const int out_y = 2 * at.y + p.residue_y[at.phase_y];
      const int out_x = 2 * at.x + p.residue_x[at.phase_x];
      if (out_z >= p.out_d || out_y >= p.out_h || out_x >= p.out_w || c >= p.finish.channels) {
        continue;
      }
      Io& out =
          static_cast<Io*>(p.finish.out)[at.n * p.out_sample + c * p.finish.channel_stride +
                                         out_z * out_plane + int64_t{out_y} * p.out_w + out_x];
      if (!isnan(mma::to_float(out))) continue;
      if constexpr (kLogsumexp) {
        out = mma::from_float<Io>(exact_output<Io, kParts>(p, at));
      } else {
        out = mma::from_float<Io>(exact_logit<Io, kParts>(p, at, c));
      }
    }
  }
}

template <typename Io, int kXParts, int kParts, EpilogueKind kKind>
__global__ void __launch_bounds__(kThreads, 1) sm90_march(const __grid_constant__ Parameters p) {
  __shared__ alignas(128) float weights[kTiles * kParts * kTileElements];
  for (int i = threadIdx.x; i < kTiles * kParts * kTileElements / 4; i += kThreads) {
    ptx::copy_async_16(ptx::shared_address(weights) + i * 16, p.weights + i * 4);
  }
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  bool weights_are_here = false;
  const auto await_weights = [&] {
    if (weights_are_here) return;
    weights_are_here = true;
    ptx::wait_for_copies();
    ptx::fence_proxy_async();
    __syncthreads();
  };

  const int group = __shfl_sync(mma::kWholeWarp, threadIdx.x / kGroupThreads, 0);
  const unsigned index = group * gridDim.x + blockIdx.x, count = kGroups * gridDim.x;
  const Steps steps = {static_cast<unsigned>(uint64_t{p.steps} * index / count),
                       static_cast<unsigned>(uint64_t{p.steps} * (index + 1) / count)};
  const uint32_t at = ptx::shared_address(weights);
  const bool came_out_nan = march<Io, kXParts, kParts, kKind, false>(p, at, steps, await_weights);
  await_weights();
  if (__syncthreads_or(came_out_nan)) repair<Io, kXParts, kParts, kKind>(p, at, steps);
}

}  // namespace volup::sm90_march

#endif  // VOLUP_CUDA_SM90_MARCH_CUH_
