// SPDX-License-Identifier: Apache-2.0
//
// The PTX instructions of the marching kernel (sm90_march.cuh) that neither ptx.h nor ptx_mma.h
// has, one function an instruction, each with its section of the PTX ISA. For sm_90a.
#ifndef VOLUP_CUDA_PTX_MARCH_H_
#define VOLUP_CUDA_PTX_MARCH_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

namespace volup::ptx {

// No instruction: uses of the values stay behind what comes before, as a wait for wgmma.
template <int kCount>
__device__ inline void hold(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

// "Matrix Descriptor Format" of wgmma: K-major, no swizzle, in blocks of 8 rows by 16 bytes. The
// next block along K is 128 bytes on, the next along the rows 256. Only the low half has the
// address.
__device__ inline uint32_t matrix_descriptor_low(uint32_t shared_address) {
  return (shared_address & 0x3ffffu) >> 4 | 128u >> 4 << 16;
}
__device__ inline uint64_t matrix_descriptor(uint32_t low) {
  uint64_t descriptor;
  asm("mov.b64 %0, {%1, %2};" : "=l"(descriptor) : "r"(low), "n"(256 >> 4));
  return descriptor;
}

// d = a b (+ d where kAccumulate). "wgmma.mma_async" m64n32k8 .tf32, a in registers ("Register
// Fragments for wgmma.mma_async.m64nNk8"): lane (g, t) of a warp has of its 16 rows a0 (row g, k
// t), a1 (g + 8, t), a2 (g, t + 4), a3 (g + 8, t + 4); d[4 j] and on (g, column 8 j + 2 t), (g,
// 8 j + 2 t + 1), (g + 8, 8 j + 2 t), (g + 8, 8 j + 2 t + 1).
template <bool kAccumulate>
__device__ inline void wgmma_m64n32k8_tf32(float (&d)[16], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %21, 0;"
      "wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1;}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAccumulate ? 1 : 0));
}

// "cvt.rn.tf32.f32": the nearest TF32.
__device__ inline float round_to_tf32(float value) {
  uint32_t result;
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(result) : "f"(value));
  return __uint_as_float(result);
}

// "st.global".
__device__ inline void store_global(void* at, float value) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(at), "f"(value) : "memory");
}
__device__ inline void store_global(void* at, __half value) {
  asm volatile("st.global.b16 [%0], %1;" ::"l"(at), "h"(__half_as_ushort(value)) : "memory");
}
__device__ inline void store_global(void* at, __nv_bfloat16 value) {
  asm volatile("st.global.b16 [%0], %1;" ::"l"(at), "h"(__bfloat16_as_ushort(value)) : "memory");
}

}  // namespace volup::ptx

#endif  // VOLUP_CUDA_PTX_MARCH_H_
