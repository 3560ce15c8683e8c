// SPDX-License-Identifier: Apache-2.0
//
// Device code of "cuda/simt". A thread sums a tile of channels at kSpan neighbouring positions,
// each sum one chain of FMAs in the order taps (D, H, W), then input channels, beginning with the
// bias; so a position's bits depend on nothing but its inputs. The warps of a block that hold the
// other channels of the same positions meet in shared memory where the epilogue couples channels.
#ifndef VOLUP_CUDA_SIMT_KERNEL_CUH_
#define VOLUP_CUDA_SIMT_KERNEL_CUH_

#include "cuda/epilogue_math.cuh"
#include "cuda/simt_kernel.h"

namespace volup {

inline constexpr int kSimtSpan = 4;  // positions a thread
inline constexpr int kSimtWarps = 8;
inline constexpr int kSimtThreads = kSimtWarps * 32;
inline constexpr unsigned kSimtFull = (1u << kSimtSpan) - 1;

template <EpilogueKind kKind>
inline constexpr bool kCouplesChannels = couples_channels(kKind);

// Where a thread's positions lie.
struct SimtPlace {
  int64_t input;      // element of x: the first position's sample, at channel and voxel 0
  int64_t output;     // element of out: the first position in channel 0
  uint32_t first[3];  // first tap; kernel or more where the phase has none
  int64_t start[3];   // what that tap reads for the first position
  unsigned live;      // bit j: position j exists
};

__device__ inline bool inside(int64_t i, int64_t size) {
  return static_cast<uint64_t>(i) < static_cast<uint64_t>(size);
}

// Finds unit u of an axis: its phase, taps and first position; returns the output position.
__device__ inline int64_t place_on_axis(const SimtAxis& axis, int64_t unit, int index,
                                        SimtPlace* place, int64_t* positions_left) {
  int64_t r;
  int64_t unit_in_phase;
  int64_t count = axis.short_count;
  if (unit < axis.long_units) {
    r = axis.by_long.divide(unit, &unit_in_phase);
    ++count;
  } else {
    r = axis.long_phases + axis.by_short.divide(unit - axis.long_units, &unit_in_phase);
  }
  const int64_t q = unit_in_phase * axis.span;
  *positions_left = count - q;

  int64_t first = axis.kernel;
  int64_t delta = 0;
  int64_t rest;
  const int64_t common = axis.by_common.divide(r + axis.padding, &rest);
  if (rest == 0) {
    axis.by_tap_step.divide(common, &first);
    axis.by_tap_step.divide(first * axis.inverse, &first);
    if (first < axis.kernel) {
      const int64_t scaled = r + axis.padding - first * axis.dilation;
      delta = scaled >= 0 ? axis.by_stride.divide(scaled) : -axis.by_stride.divide(-scaled);
    }
  }
  place->first[index] = static_cast<uint32_t>(first);
  place->start[index] = q + delta;
  return q * axis.by_stride.divisor + r;
}

__device__ inline SimtPlace find_place(const SimtArguments& a, int64_t item) {
  SimtPlace place;
  int64_t unit_w;
  int64_t unit_h;
  int64_t unit_d;
  int64_t rest = a.by_units[2].divide(item, &unit_w);
  rest = a.by_units[1].divide(rest, &unit_h);
  const int64_t n = a.by_units[0].divide(rest, &unit_d) * a.batch_span;
  int64_t left[3];
  const int64_t od = place_on_axis(a.axis[0], unit_d, 0, &place, &left[0]);
  const int64_t oh = place_on_axis(a.axis[1], unit_h, 1, &place, &left[1]);
  const int64_t ow = place_on_axis(a.axis[2], unit_w, 2, &place, &left[2]);
  place.input = n * a.in_sample;
  place.output = n * a.out_sample + (od * a.out_row_d + oh * a.out_row_h + ow);
  const int64_t along = a.span_axis < 0 ? a.batch - n : a.span_axis == 0 ? left[0] : left[1];
  place.live = along >= kSimtSpan ? kSimtFull : (1u << along) - 1;
  return place;
}

// Bit j: the input of position j exists on this axis.
__device__ inline unsigned reaching(const SimtArguments& a, int index, int64_t i) {
  if (a.span_axis != index) return inside(i, a.axis[index].in) ? kSimtFull : 0;
  unsigned mask = 0;
#pragma unroll
  for (int j = 0; j < kSimtSpan; ++j) {
    mask |= inside(i + j, a.axis[index].in) ? 1u << j : 0;
  }
  return mask;
}

// sums[j][c] += x of position j * w of channel c, over the input channels; position j takes part
// where its bit is set: a product with a missing input is not even a zero.
template <bool kAll, typename T, int kTile>
__device__ inline void add_tap(const SimtArguments& a, const T* x, const float* w, unsigned mask,
                               float (&sums)[kSimtSpan][kTile]) {
#pragma unroll 2
  for (int64_t ci = 0; ci < a.in_per_group; ++ci) {
    float value[kSimtSpan];
#pragma unroll
    for (int j = 0; j < kSimtSpan; ++j) {
      if (kAll || (mask >> j & 1)) value[j] = load_float(x + j * a.in_step);
    }
#pragma unroll
    for (int c = 0; c < kTile; c += 4) {
      const float4 weight = __ldg(reinterpret_cast<const float4*>(w + c));
#pragma unroll
      for (int j = 0; j < kSimtSpan; ++j) {
        if (kAll || (mask >> j & 1)) {
          sums[j][c] = __fmaf_rn(value[j], weight.x, sums[j][c]);
          sums[j][c + 1] = __fmaf_rn(value[j], weight.y, sums[j][c + 1]);
          sums[j][c + 2] = __fmaf_rn(value[j], weight.z, sums[j][c + 2]);
          sums[j][c + 3] = __fmaf_rn(value[j], weight.w, sums[j][c + 3]);
        }
      }
    }
    x += a.in_plane;
    w += kTile;
  }
}

// The logits of one channel tile at a thread's positions.
template <typename T, int kTile>
__device__ inline void accumulate(const SimtArguments& a, const SimtPlace& place, int64_t tile,
                                  float (&sums)[kSimtSpan][kTile]) {
#pragma unroll
  for (int c = 0; c < kTile; ++c) {
    const float bias = __ldg(a.bias + tile * kTile + c);
#pragma unroll
    for (int j = 0; j < kSimtSpan; ++j) sums[j][c] = bias;
  }
  const SimtAxis& depth = a.axis[0];
  const SimtAxis& height = a.axis[1];
  const SimtAxis& width = a.axis[2];
  const int64_t in_group = a.by_tiles_per_group.divide(tile) * a.in_per_group * a.in_plane;
  const T* const x = static_cast<const T*>(a.x) + place.input + in_group;
  const float* const w = a.weight + tile * a.taps * a.in_per_group * kTile;

  int64_t id = place.start[0];
  for (uint32_t kd = place.first[0]; kd < depth.kernel; kd += depth.tap_step) {
    const unsigned mask_d = place.live & reaching(a, 0, id);
    int64_t ih = place.start[1];
    for (uint32_t kh = place.first[1]; kh < height.kernel; kh += height.tap_step) {
      const unsigned mask = mask_d & reaching(a, 1, ih);
      int64_t iw = place.start[2];
      for (uint32_t kw = place.first[2]; kw < width.kernel; kw += width.tap_step) {
        if (mask != 0 && inside(iw, width.in)) {
          const T* const x_tap = x + ((id * height.in + ih) * width.in + iw);
          const int64_t tap = (int64_t{kd} * height.kernel + kh) * width.kernel + kw;
          const float* const w_tap = w + tap * a.in_per_group * kTile;
          if (mask == kSimtFull) {
            add_tap<true>(a, x_tap, w_tap, mask, sums);
          } else {
            add_tap<false>(a, x_tap, w_tap, mask, sums);
          }
        }
        iw -= width.delta_step;
      }
      ih -= height.delta_step;
    }
    id -= depth.delta_step;
  }
}

// Channels of a tile that exist; the others are padding.
template <int kTile>
__device__ inline int tile_channels(const SimtArguments& a, int64_t tile, int64_t* first_channel) {
  int64_t in_group;
  const int64_t group = a.by_tiles_per_group.divide(tile, &in_group);
  *first_channel = group * a.out_per_group + in_group * kTile;
  const int64_t left = a.out_per_group - in_group * kTile;
  return left < kTile ? static_cast<int>(left) : kTile;
}

// Adds the logits of one tile to each position's sum of exponentials.
template <int kTile>
__device__ inline void add_to_sums(const float (&logits)[kSimtSpan][kTile], int channels,
                                   ExpSum (&totals)[kSimtSpan]) {
#pragma unroll
  for (int j = 0; j < kSimtSpan; ++j) {
    ExpSum part;
#pragma unroll
    for (int c = 0; c < kTile; ++c) {
      if (c < channels) part.maximum = fmaxf(part.maximum, logits[j][c]);
    }
    const float shift = part.shift();
#pragma unroll
    for (int c = 0; c < kTile; ++c) {
      if (c < channels) part.sum += expf(logits[j][c] - shift);
    }
    totals[j].add(part);
  }
}

// Writes out[channel] = value(j, c, element) for every position and channel that exists.
template <typename T, int kTile, typename Value>
__device__ inline void write_tile(const SimtArguments& a, const SimtPlace& place, int64_t tile,
                                  const Value& value) {
  int64_t channel;
  const int channels = tile_channels<kTile>(a, tile, &channel);
  T* const out = static_cast<T*>(a.out);
#pragma unroll
  for (int j = 0; j < kSimtSpan; ++j) {
    if (place.live >> j & 1) {
      int64_t element = place.output + j * a.out_step + channel * a.out_plane;
#pragma unroll
      for (int c = 0; c < kTile; ++c) {
        if (c < channels) store_float(out + element, value(j, c, element));
        element += a.out_plane;
      }
    }
  }
}

template <EpilogueKind kKind, typename T, int kTile>
__global__ void __launch_bounds__(kSimtThreads, 2)
    simt_kernel(const __grid_constant__ SimtArguments a) {
  constexpr bool kCouples = kCouplesChannels<kKind>;
  __shared__ float2 parts[kCouples ? kSimtWarps : 1][kSimtSpan][32];  // (maximum, sum)
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int position_warp = warp / a.channel_warps;
  const int channel_warp = warp % a.channel_warps;

  for (int64_t block = blockIdx.x; block < a.blocks; block += gridDim.x) {
    int64_t grid_pass;
    const int64_t item_block = a.by_grid_passes.divide(block, &grid_pass);
    const int64_t item = (item_block * a.position_warps + position_warp) * 32 + lane;
    SimtPlace place = find_place(a, item < a.items ? item : 0);
    if (item >= a.items) place.live = 0;

    ExpSum totals[kSimtSpan];
    float logits[kSimtSpan][kTile];
    // A softmax whose channels do not fit the block's registers computes its logits twice.
    const bool twice = kKind == EpilogueKind::kSoftmaxSigmoid && a.block_passes > 1;
    const int64_t steps = twice ? 2 * a.block_passes : a.block_passes;
    for (int64_t step = 0; step < steps; ++step) {
      const bool second = step >= a.block_passes;
      const int64_t pass = grid_pass + (second ? step - a.block_passes : step);
      const int64_t tile = pass * a.channel_warps + channel_warp;
      const bool has_tile = tile < a.tiles;
      if (has_tile) accumulate<T, kTile>(a, place, tile, logits);

      if constexpr (kCouples) {
        if (!second) {
          int64_t channel;
          if (has_tile) add_to_sums(logits, tile_channels<kTile>(a, tile, &channel), totals);
          if (step == a.block_passes - 1) {
#pragma unroll
            for (int j = 0; j < kSimtSpan; ++j) {
              parts[warp][j][lane] = make_float2(totals[j].maximum, totals[j].sum);
            }
            __syncthreads();
#pragma unroll
            for (int j = 0; j < kSimtSpan; ++j) {
              totals[j] = ExpSum();
              for (int other = 0; other < a.channel_warps; ++other) {
                const float2 part = parts[position_warp * a.channel_warps + other][j][lane];
                totals[j].add(ExpSum{part.x, part.y});
              }
            }
          }
        }
      }
      if (!has_tile) continue;
      if constexpr (kKind == EpilogueKind::kIdentity) {
        write_tile<T, kTile>(a, place, tile, [&](int j, int c, int64_t) { return logits[j][c]; });
      } else if constexpr (kKind == EpilogueKind::kAddHardswish) {
        const T* const add = static_cast<const T*>(a.add);
        write_tile<T, kTile>(a, place, tile, [&](int j, int c, int64_t element) {
          return hardswish_product(logits[j][c] + load_float(add + element), a.epilogue);
        });
      } else if constexpr (kKind == EpilogueKind::kSoftmaxSigmoid) {
        if (second || !twice) {
          float scale[kSimtSpan];
#pragma unroll
          for (int j = 0; j < kSimtSpan; ++j) scale[j] = totals[j].softmax_scale();
          write_tile<T, kTile>(a, place, tile, [&](int j, int c, int64_t) {
            return sigmoid(expf(logits[j][c] - totals[j].maximum) * scale[j]);
          });
        }
      }
    }
    if constexpr (kKind == EpilogueKind::kLogsumexpSwishClamp) {
      T* const out = static_cast<T*>(a.out);
#pragma unroll
      for (int j = 0; j < kSimtSpan; ++j) {
        if (channel_warp == 0 && (place.live >> j & 1)) {
          store_float(out + place.output + j * a.out_step,
                      swish_clamp(totals[j].logsumexp(), a.epilogue));
        }
      }
    }
    if constexpr (kCouples) __syncthreads();  // parts is written again
  }
}

}  // namespace volup

#endif  // VOLUP_CUDA_SIMT_KERNEL_CUH_
