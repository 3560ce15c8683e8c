// SPDX-License-Identifier: Apache-2.0
//
// The PTX instructions of the mma.sync kernels, one function an instruction, each with its section
// of the PTX ISA. All exist from sm_80 on.
#ifndef VOLUP_CUDA_PTX_MMA_H_
#define VOLUP_CUDA_PTX_MMA_H_

#include <cstdint>

namespace volup::ptx {

// d = a b + c. mma.sync.m16n8k8 .tf32 ("Matrix Fragments for mma.m16n8k8"). Lane (g, t) = (lane /
// 4, lane % 4): a0 (row g, k t), a1 (g + 8, t), a2 (g, t + 4), a3 (g + 8, t + 4); b0 (k t, column
// g), b1 (t + 4, g); c and d (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
__device__ inline void mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1, const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}

// mma.sync.m16n8k4 .tf32: as above with k up to 4: a0, a1 and b0 alone.
__device__ inline void mma_m16n8k4_tf32(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0,
                                        const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%7,%8,%9,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a0), "r"(a1), "r"(b0), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// cp.async.cg ("Data Movement and Conversion Instructions: cp.async"): 16 bytes to shared memory.
__device__ inline void copy_async_16(uint32_t shared_address, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(shared_address), "l"(global)
               : "memory");
}
// cp.async.wait_all ("... cp.async.wait_group / cp.async.wait_all"), of this thread's copies.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ldmatrix ("Warp-level matrix load instruction: ldmatrix"): lane i gives the address of row i % 8
// (16 bytes) of matrix i / 8; lane (g, t) gets 32-bit word t of row g of each matrix.
__device__ inline void ldmatrix_x4(uint32_t (&d)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(shared_address)
               : "memory");
}

// No instruction: the compiler must keep the value instead of computing it again at each use.
template <typename T>
__device__ inline T keep(T value) {
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(value));
  } else {
    asm volatile("" : "+r"(value));
  }
  return value;
}

// ex2.approx.ftz.f32 ("Floating Point Instructions: ex2"): relative error up to 2^-22.
__device__ inline float exp2_approximate(float value) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

// lg2.approx.ftz.f32 ("... lg2"): absolute error up to 2^-22 in (0.5, 2), relative outside.
__device__ inline float log2_approximate(float value) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

// rcp.approx.ftz.f32 ("... rcp"): 1 ulp; 0 for more than 2^126.
__device__ inline float reciprocal_approximate(float value) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

// min.NaN.f32, max.NaN.f32 ("... min", "... max"): NaN if either is.
__device__ inline float minimum_keeping_nan(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ inline float maximum_keeping_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

}  // namespace volup::ptx

#endif  // VOLUP_CUDA_PTX_MMA_H_
