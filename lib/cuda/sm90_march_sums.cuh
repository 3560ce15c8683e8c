// SPDX-License-Identifier: Apache-2.0
//
// From the sums of a product in registers to logsumexp, for the marching kernel. v[16] is what
// wgmma_m64n32k8_tf32 leaves in a lane: both phases along W of rows g and g + 8, a share of the
// channels each, in columns as sm90_march_layout.h deals them. This lane's output is phase t / 2 of
// row g + 8 (t % 2).
#ifndef VOLUP_CUDA_SM90_MARCH_SUMS_CUH_
#define VOLUP_CUDA_SM90_MARCH_SUMS_CUH_

#include "cuda/sm90_march_layout.h"

namespace volup::sm90_march {

__device__ inline int column_of(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }
__device__ inline int half_of(int i) { return i / 2 % 2; }  // row g or g + 8

// Logit i of 4 of row g + 8 half: of this lane's own phase, or of the other one.
template <int kOther>
__device__ inline float& logit(float (&v)[16], int half, int i) {
  return v[4 * (i / 2 * 2 + kOther) + 2 * half + i % 2];
}

// 2^x on the FMA units, relative error up to 2.2e-7. From -126 down it is 2^-126, from 127.5 up
// 2^127.5, and NaN gives more than 2^127: nothing that proven() lets pass is wrong.
__device__ inline float exp2_by_fma(float x) {
  x = ptx::minimum_keeping_nan(ptx::maximum_keeping_nan(x, -126.0f), 127.5f);
  const float rounded = __fadd_rn(x, 0x1.8p23f);
  const float rest = __fsub_rn(x, __fsub_rn(rounded, 0x1.8p23f));
  float y = 0.001327647129f;
  y = fmaf(y, rest, 0.009675540961f);
  y = fmaf(y, rest, 0.05550713092f);
  y = fmaf(y, rest, 0.2402212024f);
  y = fmaf(y, rest, 0.693146944f);
  y = fmaf(y, rest, 1.000000119f);
  return __uint_as_float(__float_as_uint(y) + (__float_as_uint(rounded) << 23));
}

// kShared: one exponential in 8 goes to the FMA units.
template <int kOther, bool kShared>
__device__ inline float sum_of_exponentials(float (&v)[16], int half) {
  const float last = logit<kOther>(v, half, 3);
  return (ptx::exp2_approximate(logit<kOther>(v, half, 0)) +
          ptx::exp2_approximate(logit<kOther>(v, half, 1))) +
         (ptx::exp2_approximate(logit<kOther>(v, half, 2)) +
          (kShared && kOther == 1 ? exp2_by_fma(last) : ptx::exp2_approximate(last)));
}

// Sum of 2^v over the 16 channels of this lane's output.
template <bool kShared>
__device__ inline float channel_sum(float (&v)[16]) {
  const bool odd = threadIdx.x & 1;
  float sum[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float other = sum_of_exponentials<1, kShared>(v, half);
    sum[half] =
        sum_of_exponentials<0, kShared>(v, half) + __shfl_xor_sync(mma::kWholeWarp, other, 2);
  }
  return (odd ? sum[1] : sum[0]) + __shfl_xor_sync(mma::kWholeWarp, odd ? sum[0] : sum[1], 1);
}

template <int kOther>
__device__ inline float maximum_of(float (&v)[16], int half) {
  return fmaxf(fmaxf(logit<kOther>(v, half, 0), logit<kOther>(v, half, 1)),
               fmaxf(logit<kOther>(v, half, 2), logit<kOther>(v, half, 3)));
}

// Base-2 logsumexp of this lane's output by the maximum; NaN where a logit is NaN or the maximum is
// infinite. Destroys v.
__device__ inline float careful_log2_sum(float (&v)[16], int channels) {
  if (channels != kOutChannels) {
    // Channels past the last one count for nothing even where all others are -infinity.
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (channel_of_column(column_of(i)) >= channels) v[i] = -INFINITY;
    }
  }
  float maximum[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    maximum[half] =
        fmaxf(maximum_of<0>(v, half), __shfl_xor_sync(mma::kWholeWarp, maximum_of<1>(v, half), 2));
    maximum[half] = fmaxf(maximum[half], __shfl_xor_sync(mma::kWholeWarp, maximum[half], 1));
    const float other = __shfl_xor_sync(mma::kWholeWarp, maximum[half], 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      logit<0>(v, half, i) -= maximum[half];
      logit<1>(v, half, i) -= other;
    }
  }
  return ptx::log2_approximate(channel_sum<false>(v)) + (threadIdx.x & 1 ? maximum[1] : maximum[0]);
}

}  // namespace volup::sm90_march

#endif  // VOLUP_CUDA_SM90_MARCH_SUMS_CUH_
