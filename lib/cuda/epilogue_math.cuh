// SPDX-License-Identifier: Apache-2.0
//
// What CUDA kernels share around an epilogue: element conversion, the softmax sum of values that
// arrive in parts, a sigmoid that knows its argument's range. The formulas themselves are
// epilogue.h's.
#ifndef VOLUP_CUDA_EPILOGUE_MATH_CUH_
#define VOLUP_CUDA_EPILOGUE_MATH_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "epilogue.h"

namespace volup {

__device__ inline float load_float(const float* at) { return __ldg(at); }
__device__ inline float load_float(const __half* at) { return __half2float(__ldg(at)); }
__device__ inline float load_float(const __nv_bfloat16* at) { return __bfloat162float(__ldg(at)); }

__device__ inline void store_float(float* at, float value) { *at = value; }
__device__ inline void store_float(__half* at, float value) { *at = __float2half_rn(value); }
__device__ inline void store_float(__nv_bfloat16* at, float value) {
  *at = __float2bfloat16_rn(value);
}

// Sigmoid of a probability, on [0, 1]: an odd minimax polynomial around 1/2 in place of two special
// functions, absolute error 1.0e-7; passes NaN.
__device__ inline float sigmoid_of_probability(float x) {
  const float square = x * x;
  float odd = fmaf(square, -1.69423758e-4f, 0.00205392903f);
  odd = fmaf(odd, square, -0.0208254103f);
  odd = fmaf(odd, square, 0.249999419f);
  return fmaf(x, odd, 0.5f);
}

// Sum of exp(v - maximum) over values v. An infinite maximum counts as 0 in the sum, as in ATen. A
// NaN among the values is not in the maximum but makes the sum NaN.
struct ExpSum {
  float maximum = -INFINITY;
  float sum = 0.0f;

  __device__ float shift() const { return isinf(maximum) ? 0.0f : maximum; }

  __device__ float logsumexp() const { return logf(sum) + shift(); }

  // What to multiply exp(v - maximum) by; NaN for a row with an infinite maximum.
  __device__ float softmax_scale() const { return isinf(maximum) ? NAN : 1.0f / sum; }

  __device__ void add(const ExpSum& other) {
    const float both = fmaxf(maximum, other.maximum);
    sum = sum * factor(maximum, both) + other.sum * factor(other.maximum, both);
    maximum = both;
  }

  __device__ void add(float value) { add(ExpSum{value, isinf(value) ? expf(value) : 1.0f}); }

 private:
  // Equal infinities have no difference.
  __device__ static float factor(float part, float both) {
    return part == both ? 1.0f : expf(part - both);
  }
};

}  // namespace volup

#endif  // VOLUP_CUDA_EPILOGUE_MATH_CUH_
