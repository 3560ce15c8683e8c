// SPDX-License-Identifier: Apache-2.0
//
// How "cuda/sm90" finishes a tile: from accumulators through bias and epilogue to stores, all in
// registers. It tells where values were not finite; writing those anew is sm90_exact.cuh's.
#ifndef VOLUP_CUDA_SM90_FINISH_CUH_
#define VOLUP_CUDA_SM90_FINISH_CUH_

#include "cuda/ptx.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"

namespace volup::sm90 {

// Two neighbours in memory.
template <typename Io>
struct Pair;
template <>
struct Pair<float> {
  using Type = float2;
  static __device__ float2 load(const float2* at) { return __ldcs(at); }
  static __device__ void store(float2* at, float a, float b) { __stcs(at, make_float2(a, b)); }
};
template <>
struct Pair<__half> {
  using Type = uint32_t;
  static __device__ float2 load(const uint32_t* at) {
    const uint32_t bits = __ldcs(at);
    return __half22float2(reinterpret_cast<const __half2&>(bits));
  }
  static __device__ void store(uint32_t* at, float a, float b) { __stcs(at, ptx::pack_fp16(a, b)); }
};
template <>
struct Pair<__nv_bfloat16> {
  using Type = uint32_t;
  static __device__ float2 load(const uint32_t* at) {
    const uint32_t bits = __ldcs(at);
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000u));
  }
  static __device__ void store(uint32_t* at, float a, float b) { __stcs(at, ptx::pack_bf16(a, b)); }
};

// sigmoid(scale * v) for scale * v in [0, 1] and scale from 1 / 64 to 1, to 1e-7: an odd minimax
// polynomial around 1/2 instead of two special functions.
struct SigmoidOfProbability {
  float c1, c3, c5, c7;
  __device__ explicit SigmoidOfProbability(float scale) {
    const float square = scale * scale;
    c1 = 0.249999419f * scale;
    c3 = -0.0208254103f * scale * square;
    c5 = 0.00205392903f * scale * square * square;
    c7 = -1.69423758e-4f * scale * square * square * square;
  }
  __device__ float operator()(float v) const {
    const float square = v * v;
    return fmaf(v, fmaf(fmaf(fmaf(square, c7, c5), square, c3), square, c1), 0.5f);
  }
};

template <EpilogueKind kKind, typename Io, int kN>
struct Finish : Block {
  using Block::Block;
  using Accumulators = float[2][kN / 2];
  using Vector = typename Pair<Io>::Type;
  static constexpr bool kAdds = takes_add(kKind);

  // Where a thread's values belong: two rows y, one column x an accumulator, channels
  // 8 i + e after its first.
  struct Outputs {
    int64_t first;  // element offset of row 0, accumulator 0, first channel
    bool whole;     // all of the tile exists, and pairs of columns can go together
  };
  // Which of them exist, where not all do.
  struct Edges {
    bool row[2], column[2];
    int channels;  // from its first one on
  };

  __device__ int first_channel(int lane) const { return c.first_channel + lane % 4 * 2; }
  __device__ int first_y(const Tile& tile, int warp) const {
    return (tile.y + 2 * warp) * p.stride_y + c.phase_y;
  }
  __device__ int first_x(const Tile& tile, int lane) const {
    return (tile.x + c.shift_x[0] + lane / 4) * p.stride_x + c.phase_x[0];
  }
  // Elements to the other row, to the other accumulator.
  __device__ int row_step() const { return p.stride_y * p.ow; }
  __device__ int column_step() const {
    return (c.shift_x[1] - c.shift_x[0]) * p.stride_x + c.phase_x[1] - c.phase_x[0];
  }

  __device__ Outputs locate(const Tile& tile, bool exists, int warp, int lane) const {
    Outputs o;
    const int z = tile.z * p.stride_z + c.phase_z;
    o.first = (((static_cast<int64_t>(tile.n) * p.co + first_channel(lane)) * p.od + z) * p.oh +
               first_y(tile, warp)) *
                  p.ow +
              first_x(tile, lane);
    o.whole = p.paired && exists && c.first_channel + kN <= p.co &&
              (tile.y + kTileEdge - 1) * p.stride_y + c.phase_y < p.oh &&
              (tile.x + kTileEdge - 1) * p.stride_x + c.phase_x[1] < p.ow;
    return o;
  }

  __device__ Edges edges(const Tile& tile, bool exists, int warp, int lane) const {
    Edges edges;
    const int y = first_y(tile, warp), x = first_x(tile, lane);
    edges.row[0] = exists && y < p.oh;
    edges.row[1] = exists && y + p.stride_y < p.oh;
    edges.column[0] = x < p.ow;
    edges.column[1] = c.accumulators == 2 && x + column_step() < p.ow;
    edges.channels = p.co - first_channel(lane);
    return edges;
  }

  // Calls body(i, e, h, pointer to the value of accumulator 0) for all rows and channels; for
  // those that exist where kWhole is false.
  template <bool kWhole, typename Body>
  __device__ void for_each_output(const Outputs& o, const Edges& edges, const Body& body) const {
    Io* at = ptx::opaque(static_cast<Io*>(p.out) + o.first);
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (kWhole || (edges.row[h] && 8 * i + e < edges.channels)) {
            body(i, e, h, h == 0 ? at : at + row_step());
          }
        }
        at = ptx::opaque(at + (e == 0 ? output_plane() : 7 * output_plane()));
      }
    }
  }

  // add of a whole tile: kAhead groups of 8 channels are under way at a time, as many as registers
  // allow beside the accumulators.
  static constexpr int kGroups = kN / 8;
  static constexpr int kAhead = kAdds ? 2 : 1;
  struct Added {
    float2 value[kAhead][2][2];
  };

  // Of group i, whose first element's output is at out.
  __device__ void load_group(const Io* out, Added& added, int i) const {
    const Io* at = ptx::opaque(static_cast<const Io*>(p.add) + (out - static_cast<Io*>(p.out)));
#pragma unroll
    for (int e = 0; e < 2; ++e) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        added.value[i % kAhead][e][h] =
            Pair<Io>::load(reinterpret_cast<const Vector*>(h == 0 ? at : at + row_step()));
      }
      if (e == 0) at = ptx::opaque(at + output_plane());
    }
  }

  // The groups that are under way before the products are awaited.
  __device__ void load_first_groups(const Outputs& o, Added& added) const {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      load_group(static_cast<Io*>(p.out) + o.first + 8 * i * output_plane(), added, i);
    }
  }

  // From accumulators to outputs. False where a value was not finite: the tile must be written
  // anew.
  template <bool kWhole>
  __device__ bool finish(Accumulators& acc, Added& added, const Outputs& o, const Edges& edges,
                         int lane) const {
    const float* bias = &shared.bias[lane % 4 * 2];
    float check = 0.0f;  // stays 0 as long as all is finite
    if constexpr (kKind == EpilogueKind::kSoftmaxSigmoid) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (kWhole || j < c.accumulators) softmax_sigmoid_rows(acc[j], bias, check);
      }
    }
    for_each_output<kWhole>(o, edges, [&](int i, int e, int h, Io* at) {
      float value[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        value[j] = acc[j][4 * i + 2 * h + e];
        if constexpr (kKind != EpilogueKind::kSoftmaxSigmoid) {
          if (kWhole || edges.column[j]) check = fmaf(value[j], 0.0f, check);
          value[j] += bias[8 * i + e];
        }
        if constexpr (kAdds && kWhole) {
          const float2 a = added.value[i % kAhead][e][h];
          value[j] = add_hardswish(value[j] + (j == 0 ? a.x : a.y));
        } else if constexpr (kAdds) {
          const Io* add = static_cast<const Io*>(p.add) + (at - static_cast<Io*>(p.out));
          if (edges.column[j]) {
            value[j] = add_hardswish(value[j] + to_float(add[j * column_step()]));
          }
        }
      }
      if constexpr (kWhole) {
        Pair<Io>::store(reinterpret_cast<Vector*>(at), value[0], value[1]);
      } else {
        if (edges.column[0]) at[0] = from_float<Io>(value[0]);
        if (edges.column[1]) at[column_step()] = from_float<Io>(value[1]);
      }
      if constexpr (kAdds && kWhole) {
        if (e == 1 && h == 1 && i + kAhead < kGroups) {
          load_group(at - row_step() + (8 * kAhead - 1) * output_plane(), added, i + kAhead);
        }
      }
    });
    return check == 0.0f;
  }

  // With clamp_min 0 and clamp_max = divisor, clamp(t + shift, 0, divisor) / divisor saturates.
  __device__ float add_hardswish(float t) const {
    return t * ptx::fma_saturate(t, p.gate_scale, p.gate_shift) * t;
  }

  // A row's channels are spread over the four threads of a quad. Bias of channels that do not exist
  // is -inf.
  __device__ static void softmax_sigmoid_rows(float (&acc)[kN / 2], const float* bias,
                                              float& check) {
    constexpr float kLog2E = 1.44269504f;
    float maximum[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float b = bias[8 * i + e] * kLog2E;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& v = acc[4 * i + 2 * h + e];
          v = fmaf(v, kLog2E, b);
          maximum[h] = fmaxf(maximum[h], v);
        }
      }
    }
    float sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      maximum[h] = fmaxf(maximum[h], __shfl_xor_sync(~0u, maximum[h], 1));
      maximum[h] = fmaxf(maximum[h], __shfl_xor_sync(~0u, maximum[h], 2));
    }
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& v = acc[4 * i + 2 * h + e];
          v = ptx::ex2(v - maximum[h]);
          sum[h] += v;
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
      sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
      check = fmaf(sum[h], 0.0f, check);
    }
    const SigmoidOfProbability sigmoid[2] = {SigmoidOfProbability(ptx::rcp(sum[0])),
                                             SigmoidOfProbability(ptx::rcp(sum[1]))};
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& v = acc[4 * i + 2 * h + e];
          v = sigmoid[h](v);
        }
      }
    }
  }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_FINISH_CUH_
