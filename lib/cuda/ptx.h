// SPDX-License-Identifier: Apache-2.0
//
// The PTX instructions that kernels use and CUDA C++ does not name. One instruction, one function;
// each cites its section of the PTX ISA. No algorithm lives here.
#ifndef VOLUP_CUDA_PTX_H_
#define VOLUP_CUDA_PTX_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace volup::ptx {

// "Special Registers" and address spaces: the 32-bit address of a generic pointer to shared memory.
__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// No instruction: a value the compiler knows nothing of, so that what is computed from it is not
// shared with (and kept in registers from) an earlier computation of the same.
template <typename T>
__device__ inline T* opaque(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

// No instruction: a value that the compiler does not know to be the same for all threads.
__device__ inline uint32_t varying(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// "Special Registers", %tid.x: read anew at each call, in place of a register that holds it.
__device__ inline uint32_t thread_index() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

// "Special Registers", %ctaid.x: likewise.
__device__ inline uint32_t block_index() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

// ---- Half-precision and special-function arithmetic --------------------------------------------

// "ex2": 2^x, flushing subnormal results to 0.
__device__ inline float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// "rcp": 1 / x.
__device__ inline float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// "fma" with .sat: clamp(a * b + c, 0, 1); NaN gives 0.
__device__ inline float fma_saturate(float a, float b, float c) {
  float d;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}

// "cvt": two floats to packed bf16, round to nearest even; low takes the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// "cvt": two floats to packed fp16, round to nearest even; low takes the lower half.
__device__ inline uint32_t pack_fp16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// ---- Barriers ----------------------------------------------------------------------------------

// "mbarrier.init".
__device__ inline void mbarrier_init(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}

// "fence": makes mbarrier.init visible to the asynchronous proxy.
__device__ inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// "mbarrier.arrive".
__device__ inline void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

// "mbarrier.arrive", count times at once, where arrives is true, without a branch.
__device__ inline void mbarrier_arrive_if(bool arrives, uint64_t* barrier, uint32_t count) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %2, 0;\n\t"
      "@p mbarrier.arrive.shared::cta.b64 _, [%0], %1;\n\t"
      "}" ::"r"(shared_address(barrier)),
      "r"(count), "r"(static_cast<uint32_t>(arrives))
      : "memory");
}

// "mbarrier.arrive.expect_tx": arrives and expects bytes of asynchronous copies.
__device__ inline void mbarrier_arrive_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

#define VOLUP_PTX_MBARRIER_WAIT(OPERATION)        \
  uint32_t done;                                  \
  asm volatile(                                   \
      "{\n"                                       \
      ".reg .pred p;\n"                           \
      "mbarrier." OPERATION                       \
      ".parity.shared::cta.b64 p, [%1], %2;\n"    \
      "selp.u32 %0, 1, 0, p;\n"                   \
      "}"                                         \
      : "=r"(done)                                \
      : "r"(shared_address(barrier)), "r"(parity) \
      : "memory");                                \
  return done != 0

// "mbarrier.try_wait": whether the phase of this parity has completed; may suspend for a while.
__device__ inline bool mbarrier_try_wait(uint64_t* barrier, uint32_t parity) {
  VOLUP_PTX_MBARRIER_WAIT("try_wait");
}

// "mbarrier.test_wait": the same, at once.
__device__ inline bool mbarrier_test_wait(uint64_t* barrier, uint32_t parity) {
  VOLUP_PTX_MBARRIER_WAIT("test_wait");
}

#undef VOLUP_PTX_MBARRIER_WAIT

// "fence.proxy.async": this thread's ordinary writes to shared memory before it are seen by
// asynchronous reads (wgmma, bulk copies) that are ordered after it.
__device__ inline void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// "atom" with .acquire and .release among the threads of a block: what happened before the addition
// of 1 is seen by whoever loads the sum.
__device__ inline uint32_t atomic_load_acquire(uint32_t* shared) {
  uint32_t value;
  asm volatile("atom.acquire.cta.shared::cta.or.b32 %0, [%1], 0;"
               : "=r"(value)
               : "r"(shared_address(shared))
               : "memory");
  return value;
}
__device__ inline void atomic_count_release(uint32_t* shared) {
  asm volatile("atom.release.cta.shared::cta.add.u32 _, [%0], 1;" ::"r"(shared_address(shared))
               : "memory");
}

// ---- Shared memory by its address --------------------------------------------------------------
// For memory that is not read or written in any other way: these, the copies below and waits stay
// in the order in which they are written, and nothing else is held up by them.

// "ld.shared".
__device__ inline uint32_t load_shared(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
  return value;
}

__device__ inline uint2 load_shared_64(uint32_t address) {
  uint2 value;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address));
  return value;
}
__device__ inline uint4 load_shared_128(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address));
  return value;
}

// "st.shared".
__device__ inline void store_shared(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value));
}
__device__ inline void store_shared(uint32_t address, uint4 value) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w));
}

// ---- Loads from global memory -------------------------------------------------------------------

// "ld.global.nc": what is read once and not written by the kernel: past L1, and whole lines of 128
// bytes to L2, for neighbours read the rest of a line soon.
__device__ inline float2 load_once(const float2* at) {
  float2 value;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.f32 {%0, %1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "l"(at));
  return value;
}
__device__ inline uint32_t load_once(const uint32_t* at) {
  uint32_t value;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(value) : "l"(at));
  return value;
}

// "createpolicy": of memory that L2 is to give up last.
__device__ inline uint64_t keep_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Of what will be read again, by others.
__device__ inline float4 load_kept(const float4* at) {
  float4 value;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(at), "l"(keep_policy()));
  return value;
}

// ---- Asynchronous copies by each thread ---------------------------------------------------------

// "cp.async.ca": 4 bytes to shared memory; zero, and nothing read, where bytes is 0 and not 4.
__device__ inline void copy_4(uint32_t shared, const void* global, uint32_t bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global),
               "r"(bytes));
}

// "cp.async.commit_group": this thread's copies since the last one are a group.
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// "cp.async.wait_group": until at most kPending groups of this thread are under way.
template <int kPending>
__device__ inline void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- Bulk copies -------------------------------------------------------------------------------

// "cp.async.bulk": bytes (a multiple of 16, both ends aligned to 16) from global to shared memory,
// counted on barrier.
__device__ inline void bulk_copy(void* shared, const void* global, uint32_t bytes,
                                 uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// "cp.async.bulk.tensor": a box of a 5-dimensional tensor from global to shared memory (aligned to
// what its swizzle asks for), zero outside it, counted on barrier. map: a CUtensorMap among the
// kernel's parameters; the coordinates: fastest first.
__device__ inline void tensor_copy(void* shared, const void* map, int i0, int i1, int i2, int i3,
                                   int i4, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(shared_address(shared)),
      "l"(map), "r"(i0), "r"(i1), "r"(i2), "r"(i3), "r"(i4), "r"(shared_address(barrier))
      : "memory");
}

// The same of what will be read again: L2 gives it up last.
__device__ inline void tensor_copy_kept(void* shared, const void* map, int i0, int i1, int i2,
                                        int i3, int i4, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(shared_address(shared)),
      "l"(map), "r"(i0), "r"(i1), "r"(i2), "r"(i3), "r"(i4), "r"(shared_address(barrier)),
      "l"(keep_policy())
      : "memory");
}

// "cp.async.bulk.tensor": a box from shared memory to a 5-dimensional tensor in global memory, less
// what is outside it, in the thread's current group of bulk copies.
__device__ inline void tensor_store(const void* map, int i0, int i1, int i2, int i3, int i4,
                                    uint32_t shared) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4, %5}],"
      " [%6];" ::"l"(map),
      "r"(i0), "r"(i1), "r"(i2), "r"(i3), "r"(i4), "r"(shared)
      : "memory");
}

// "cp.async.bulk.commit_group".
__device__ inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// "cp.async.bulk.wait_group": until all the thread's groups are stored.
__device__ inline void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// The same with .read: until all of them have been read.
__device__ inline void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// ---- Programmatic dependent launch -------------------------------------------------------------

// "griddepcontrol.wait": until the grids this one depends on have completed.
__device__ inline void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// "griddepcontrol.launch_dependents".
__device__ inline void grid_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// ---- Warpgroup matrix multiply (sm_90a) --------------------------------------------------------

// "setmaxnreg".
template <int kRegisters>
__device__ inline void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// "wgmma.fence".
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// "wgmma.commit_group".
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// "wgmma.wait_group": until at most kPending groups are under way.
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// "Matrix Descriptor Format" of wgmma: a K-major operand in shared memory, rows of 64 bytes,
// 64-byte swizzle (bits 4 and 5 of an address are XORed with its bits 7 and 8). The upper half, of
// group_stride: bytes from 8 rows to the next 8.
__device__ inline uint32_t matrix_descriptor_64_high(uint32_t group_stride) {
  return group_stride >> 4 | 2u << 30;
}
// The whole of it; at: the operand's address in 16 bytes.
__device__ inline uint64_t matrix_descriptor_64(uint32_t at, uint32_t high) {
  return static_cast<uint64_t>(high) << 32 | (at + (1u << 16));
}

// Operands of 8 and of 32 accumulators.
#define VOLUP_PTX_8(d, i)                                                                     \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define VOLUP_PTX_32(d) VOLUP_PTX_8(d, 0), VOLUP_PTX_8(d, 8), VOLUP_PTX_8(d, 16), VOLUP_PTX_8(d, 24)

// "wgmma.mma_async": d = a * b (+ d where accumulate is not 0), m64n64k16, a and b in shared
// memory.
#define VOLUP_PTX_WGMMA_N64(TYPE)                                 \
  asm volatile(                                                   \
      "{\n"                                                       \
      ".reg .pred p;\n"                                           \
      "setp.ne.b32 p, %34, 0;\n"                                  \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE \
      " {"                                                        \
      "%0, %1, %2, %3, %4, %5, %6, %7, "                          \
      "%8, %9, %10, %11, %12, %13, %14, %15, "                    \
      "%16, %17, %18, %19, %20, %21, %22, %23, "                  \
      "%24, %25, %26, %27, %28, %29, %30, %31}, "                 \
      "%32, %33, p, 1, 1, 0, 0;\n"                                \
      "}"                                                         \
      : VOLUP_PTX_32(d)                                           \
      : "l"(a), "l"(b), "r"(accumulate))

// T is __half or __nv_bfloat16; d has kN / 2 floats a thread.
template <int kN, typename T>
__device__ inline void wgmma(float (&d)[kN / 2], uint64_t a, uint64_t b, uint32_t accumulate) {
  static_assert(kN == 64);
  if constexpr (std::is_same_v<T, __half>) {
    VOLUP_PTX_WGMMA_N64("f16");
  } else {
    VOLUP_PTX_WGMMA_N64("bf16");
  }
}

#undef VOLUP_PTX_32
#undef VOLUP_PTX_8
#undef VOLUP_PTX_WGMMA_N64

}  // namespace volup::ptx

#endif  // VOLUP_CUDA_PTX_H_
