// SPDX-License-Identifier: Apache-2.0
//
// Which numbers the samples of x hold: what kScaledEngine's scales are made of, and what decides
// which engine takes a sample. One pass over x, before the fused kernels.
#include "cuda/ptx.h"
#include "cuda/sm90_launch.h"
#include "cuda/sm90_layout.h"

namespace volup::sm90 {

namespace {

constexpr int kThreads = 512;
constexpr uint32_t kInfinity = 0x7F800000;

__device__ void take(Range& range, float value) {
  const uint32_t bits = __float_as_uint(value) & 0x7FFFFFFFu;
  range.greatest = max(range.greatest, bits < kInfinity ? bits : 0);
  range.least_less_1 = min(range.least_less_1, bits - 1);
  range.filled += bits != 0;
}

// A block a piece of a sample, of length elements at most; the last piece first, so that L2 holds
// what the kernel behind begins with.
__global__ void __launch_bounds__(kThreads)
    measure_ranges(const float* __restrict__ x, int64_t sample, int64_t length, int pieces,
                   Range* __restrict__ ranges, uint32_t* __restrict__ left_some) {
  // The kernel behind brings its weights meanwhile.
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const uint32_t piece = gridDim.x - 1 - blockIdx.x;
  const int64_t n = piece / pieces;
  const int64_t begin = min(piece % pieces * length, sample);
  const int64_t count = min(length, sample - begin);
  const float* const first = x + n * sample + begin;

  constexpr Range kNone = {0, ~0u, 0, 0};
  Range own = kNone;
  int64_t taken = 0;
  if (reinterpret_cast<uintptr_t>(first) % 16 == 0) {
    const auto* quads = reinterpret_cast<const float4*>(first);
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < count / 4; i += kThreads) {
      const float4 quad = ptx::load_kept(quads + i);
      take(own, quad.x);
      take(own, quad.y);
      take(own, quad.z);
      take(own, quad.w);
    }
    taken = count / 4 * 4;
  }
  for (int64_t i = taken + threadIdx.x; i < count; i += kThreads) take(own, __ldg(first + i));

  __shared__ Range of_warp[kThreads / 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto reduce = [](Range& e) {
    e.greatest = __reduce_max_sync(~0u, e.greatest);
    e.least_less_1 = __reduce_min_sync(~0u, e.least_less_1);
    e.filled = __reduce_add_sync(~0u, e.filled);
  };
  reduce(own);
  if (lane == 0) of_warp[warp] = own;
  __syncthreads();
  if (warp != 0) return;
  own = lane < kThreads / 32 ? of_warp[lane] : kNone;
  reduce(own);
  if (lane != 0) return;
  own.filled = static_cast<uint32_t>(uint64_t{own.filled} * kFilled / count);
  ranges[piece] = own;
  if (piece == 0) *left_some = 0;
}

}  // namespace

RangeKernel range_kernel() { return {reinterpret_cast<const void*>(&measure_ranges), kThreads}; }

}  // namespace volup::sm90
