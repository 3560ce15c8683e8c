// SPDX-License-Identifier: Apache-2.0
//
// What follows the products in the mma.sync kernels: from the logits of 16 or 32 positions in
// tensor-core fragments to the output in memory, for each epilogue. The products themselves are
// elsewhere.
//
// Logits come as v[m][tile][4], the fragments of kRowTiles m16 tiles by kTiles n8 tiles. Lane (g,
// t) holds of position row 8 r + g, r = 2 m + half, the channels 8 tile + 2 t + {0, 1}. For the
// epilogues that couple channels the logits are in base 2 (weights and bias times log2 e), and
// channels past the last one read kNoChannel.
//
// A kernel brings two functors: offset(r), the element of channel 0 in the output or -1 where there
// is none, and exact(r, c), the logit by an fp32 FMA chain from the tensors in memory. Splitting an
// operand in two makes NaN of an infinity and of the last binade, and a zero weight beside it too:
// every logit that is not finite is taken again from exact(). That depends on the logit alone.
#ifndef VOLUP_CUDA_MMA_FINISH_CUH_
#define VOLUP_CUDA_MMA_FINISH_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

#include "cuda/epilogue_math.cuh"
#include "cuda/ptx_mma.h"
#include "epilogue.h"

namespace volup::mma {

inline constexpr unsigned kWholeWarp = 0xffffffffu;
inline constexpr float kNoChannel = -0x1p100f;  // finite, because 0 * infinity is not 0
inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

template <typename Io>
__device__ inline float to_float(Io value) {
  return static_cast<float>(value);
}
template <typename Io>
__device__ inline Io from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// value = high + low up to 2^-23 of it, both TF32: high by Veltkamp's product, low rounded by half
// a unit where the tensor core cuts it. NaN, infinity and the last binades make high NaN.
__device__ inline void split(float value, float& high, float& low) {
  const float scaled = __fmul_rn(value, 8193.0f);  // 2^13 + 1
  high = __fsub_rn(scaled, __fsub_rn(scaled, value));
  low = __uint_as_float(__float_as_uint(__fsub_rn(value, high)) + 0x1000u);
}

// The epilogue and the output as the device needs them.
struct FinishParameters {
  void* out;
  const void* add;
  int64_t channel_stride;
  int channels;
  Epilogue epilogue;
  // logsumexp: of the sum s of exponentials, gated = log2(s) * scale * s / (s + exp(-shift)).
  float shift_exponential;  // exp(-shift)
  float scale;              // ln 2 / divisor
  float sum_min, sum_max;   // where s proves itself, see finish_logsumexp
};

inline FinishParameters make_finish(const Epilogue& epilogue, int64_t channels,
                                    int64_t channel_stride) {
  FinishParameters p = {};
  p.channel_stride = channel_stride;
  p.channels = static_cast<int>(channels);
  p.epilogue = epilogue;
  p.shift_exponential = static_cast<float>(std::exp(-static_cast<double>(epilogue.shift)));
  p.scale = static_cast<float>(0.693147180559945309 / epilogue.divisor);
  p.sum_min = static_cast<float>(channels) * 0x1p-102f;
  p.sum_max = 0x1p125f;
  return p;
}

__device__ inline float quad_sum(float value) {
  value += __shfl_xor_sync(kWholeWarp, value, 1);
  return value + __shfl_xor_sync(kWholeWarp, value, 2);
}
__device__ inline float quad_maximum(float value) {
  value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, 1));
  return fmaxf(value, __shfl_xor_sync(kWholeWarp, value, 2));
}

// Element t of the quad's sums over its four lanes, in lane t: 3 shuffles instead of 8.
__device__ inline float quad_transpose_sum(float s0, float s1, float s2, float s3, int t) {
  const bool upper = t & 2;
  const bool odd = t & 1;
  const float keep0 = (upper ? s2 : s0) + __shfl_xor_sync(kWholeWarp, upper ? s0 : s2, 2);
  const float keep1 = (upper ? s3 : s1) + __shfl_xor_sync(kWholeWarp, upper ? s1 : s3, 2);
  return (odd ? keep1 : keep0) + __shfl_xor_sync(kWholeWarp, odd ? keep0 : keep1, 1);
}

// Where lane t's j-th logit of position row r is, and its channel.
template <int kRowTiles, int kTiles>
__device__ inline float& logit(float (&v)[kRowTiles][kTiles][4], int r, int j) {
  return v[r / 2][j / 2][2 * (r % 2) + j % 2];
}
template <int kRowTiles, int kTiles>
__device__ inline float logit(const float (&v)[kRowTiles][kTiles][4], int r, int j) {
  return v[r / 2][j / 2][2 * (r % 2) + j % 2];
}
__device__ inline int channel_of(int j, int t) { return 8 * (j / 2) + 2 * t + j % 2; }

// Logits that may be indexed at run time: a copy, so that the fragments stay in registers.
template <int kRowTiles, int kTiles>
struct LogitCopy {
  float value[2 * kRowTiles][2 * kTiles];
};

template <int kRowTiles, int kTiles, typename Exact>
__device__ __noinline__ void repair(LogitCopy<kRowTiles, kTiles>& logits, int channels,
                                    const Exact& exact) {
  const int t = threadIdx.x % 4;
#pragma unroll 1
  for (int i = 0; i < 4 * kRowTiles * kTiles; ++i) {
    const int r = i / (2 * kTiles), j = i % (2 * kTiles);
    const int c = channel_of(j, t);
    if (c < channels && !isfinite(logits.value[r][j])) logits.value[r][j] = exact(r, c);
  }
}

// Replaces v's logits that are not finite, if the warp has any.
template <int kRowTiles, int kTiles, typename Exact>
__device__ inline void repair_if_needed(float (&v)[kRowTiles][kTiles][4], int channels,
                                        const Exact& exact) {
  float witness = 0;  // stays 0 unless a factor is NaN or infinite
#pragma unroll
  for (int i = 0; i < 4 * kRowTiles * kTiles; ++i) {
    witness = fmaf(logit(v, i / (2 * kTiles), i % (2 * kTiles)), 0.0f, witness);
  }
  if (!__any_sync(kWholeWarp, witness != 0.0f)) return;
  LogitCopy<kRowTiles, kTiles> copy;
#pragma unroll
  for (int i = 0; i < 4 * kRowTiles * kTiles; ++i) {
    const int r = i / (2 * kTiles), j = i % (2 * kTiles);
    copy.value[r][j] = logit(v, r, j);
  }
  const Exact exact_copy = exact;  // its address is taken here alone
  repair(copy, channels, exact_copy);
#pragma unroll
  for (int i = 0; i < 4 * kRowTiles * kTiles; ++i) {
    const int r = i / (2 * kTiles), j = i % (2 * kTiles);
    logit(v, r, j) = copy.value[r][j];
  }
}

// Logsumexp without a maximum: adds up 2^v and then asks the sum. A finite sum proves that no term
// overflowed; its largest term is at least sum / channels, so with sum >= channels * 2^-102 the
// terms that underflowed lost at most 2^-24 of it. Rows that are not proven (NaN and infinities
// among them) go by the maximum.

// This lane's part of the sum of row r.
template <int kRowTiles, int kTiles>
__device__ inline float partial_sum(const float (&v)[kRowTiles][kTiles][4], int r) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < 2 * kTiles; j += 2) {
    const float pair =
        ptx::exp2_approximate(logit(v, r, j)) + ptx::exp2_approximate(logit(v, r, j + 1));
    sum = j == 0 ? pair : sum + pair;
  }
  return sum;
}

__device__ inline bool proven(float sum, const FinishParameters& p) {
  return sum >= p.sum_min && sum <= p.sum_max;
}

// l sigmoid(l + shift) / divisor with l = ln sum, where sigmoid(l + shift) = sum / (sum +
// e^-shift).
__device__ inline float gated_of_sum(float sum, const FinishParameters& p) {
  const float gate = sum * ptx::reciprocal_approximate(sum + p.shift_exponential);
  return ptx::log2_approximate(sum) * p.scale * gate;
}

// Channels past the last one count for nothing even where all others are -infinity.
template <int kRowTiles, int kTiles>
__device__ inline void drop_missing_channels(float (&v)[kRowTiles][kTiles][4], int channels) {
  if (channels == 8 * kTiles) return;
#pragma unroll
  for (int i = 0; i < 4 * kRowTiles * kTiles; ++i) {
    const int j = i % (2 * kTiles);
    if (channel_of(j, threadIdx.x % 4) >= channels) logit(v, i / (2 * kTiles), j) = -INFINITY;
  }
}

// Base-2 logsumexp of row r by its maximum, in all lanes of the quad.
template <int kRowTiles, int kTiles>
__device__ inline float careful_log2_sum(const float (&v)[kRowTiles][kTiles][4], int r) {
  float maximum = logit(v, r, 0);  // skips NaN, which then shows in the sum
#pragma unroll
  for (int j = 1; j < 2 * kTiles; ++j) maximum = fmaxf(maximum, logit(v, r, j));
  maximum = quad_maximum(maximum);
  if (isinf(maximum)) maximum = 0;  // as in ATen
  float sum = 0;
#pragma unroll
  for (int j = 0; j < 2 * kTiles; ++j) {
    sum += ptx::exp2_approximate(logit(v, r, j) - maximum);
  }
  return ptx::log2_approximate(quad_sum(sum)) + maximum;
}

__device__ inline float gated_of_log2(float log2_sum, const FinishParameters& p) {
  const float l = log2_sum * kLn2;
  const float e = ptx::exp2_approximate(-(l + p.epilogue.shift) * kLog2E);
  return log2_sum * p.scale * ptx::reciprocal_approximate(1.0f + e);
}

__device__ inline float subtract_and_clamp(float gated, const FinishParameters& p) {
  return ptx::minimum_keeping_nan(
      ptx::maximum_keeping_nan(gated - p.epilogue.subtract, p.epilogue.clamp_min),
      p.epilogue.clamp_max);
}

// One phase: lane t ends with row t, where there is one.
template <typename Io, int kRowTiles, int kTiles, typename Offset, typename Exact>
__device__ inline void finish_logsumexp(float (&v)[kRowTiles][kTiles][4], const FinishParameters& p,
                                        const Offset& offset, const Exact& exact) {
  const int t = threadIdx.x % 4;
  float of_row[4] = {};
#pragma unroll
  for (int r = 0; r < 2 * kRowTiles; ++r) of_row[r] = partial_sum(v, r);
  const float sum = quad_transpose_sum(of_row[0], of_row[1], of_row[2], of_row[3], t);
  float gated = gated_of_sum(sum, p);
  const bool exists = t < 2 * kRowTiles;
  if (__any_sync(kWholeWarp, exists && !proven(sum, p))) {
    repair_if_needed(v, p.channels, exact);
    drop_missing_channels(v, p.channels);
    float row = 0;
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      const float careful = careful_log2_sum(v, r);
      if (t == r) row = careful;
    }
    if (!proven(sum, p)) gated = gated_of_log2(row, p);
  }
  const int64_t at = exists ? offset(t) : -1;
  if (at >= 0) static_cast<Io*>(p.out)[at] = from_float<Io>(subtract_and_clamp(gated, p));
}

// The epilogues that write every channel.
template <typename Io, EpilogueKind kKind, int kRowTiles, int kTiles, typename Offset,
          typename Exact>
__device__ inline void finish_channels(float (&v)[kRowTiles][kTiles][4], const FinishParameters& p,
                                       const Offset& offset, const Exact& exact) {
  repair_if_needed(v, p.channels, exact);
  if constexpr (kKind == EpilogueKind::kSoftmaxSigmoid) drop_missing_channels(v, p.channels);
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2 * kRowTiles; ++r) {
    float scale = 1;
    if constexpr (kKind == EpilogueKind::kSoftmaxSigmoid) {
      float maximum = logit(v, r, 0);  // skips NaN, which then shows in the sum
#pragma unroll
      for (int j = 1; j < 2 * kTiles; ++j) maximum = fmaxf(maximum, logit(v, r, j));
      maximum = quad_maximum(maximum);
      float sum = 0;
#pragma unroll
      for (int j = 0; j < 2 * kTiles; ++j) {
        logit(v, r, j) = ptx::exp2_approximate(logit(v, r, j) - maximum);
        sum += logit(v, r, j);
      }
      scale = ptx::reciprocal_approximate(quad_sum(sum));
    }
    const int64_t at = offset(r);
    if (at < 0) continue;
#pragma unroll
    for (int j = 0; j < 2 * kTiles; ++j) {
      const int c = channel_of(j, t);
      if (c >= p.channels) continue;
      const int64_t element = at + c * p.channel_stride;
      float value = logit(v, r, j);
      if constexpr (kKind == EpilogueKind::kSoftmaxSigmoid) {
        value = sigmoid_of_probability(value * scale);
      } else if constexpr (kKind == EpilogueKind::kAddHardswish) {
        value =
            hardswish_product(value + to_float(static_cast<const Io*>(p.add)[element]), p.epilogue);
      }
      static_cast<Io*>(p.out)[element] = from_float<Io>(value);
    }
  }
}

template <typename Io, EpilogueKind kKind, int kRowTiles, int kTiles, typename Offset,
          typename Exact>
__device__ inline void finish(float (&v)[kRowTiles][kTiles][4], const FinishParameters& p,
                              const Offset& offset, const Exact& exact) {
  if constexpr (kKind == EpilogueKind::kLogsumexpSwishClamp) {
    finish_logsumexp<Io>(v, p, offset, exact);
  } else {
    finish_channels<Io, kKind>(v, p, offset, exact);
  }
}

}  // namespace volup::mma

#endif  // VOLUP_CUDA_MMA_FINISH_CUH_
