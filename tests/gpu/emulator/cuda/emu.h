#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
using std::isfinite; using std::isnan; using std::isinf; using std::min;
#undef __noinline__
#define __noinline__
#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
namespace emu { struct Dim { unsigned x = 0; };
struct Bar { int arrived = 0; unsigned gen = 0; };
struct Warp { Bar bar; uint32_t v[32]; uint32_t a[32][4]; };
extern Warp warps[64]; extern Bar group_bars[16]; extern int group_flag[16]; extern Bar block_bar; extern float* smem;
void wait(Bar& b, int n); extern int switches; }
extern emu::Dim threadIdx, blockIdx, gridDim;
inline emu::Warp& my_warp() { return emu::warps[threadIdx.x / 32]; }
inline uint32_t __float_as_uint(float f) { return std::bit_cast<uint32_t>(f); }
inline float __uint_as_float(uint32_t u) { return std::bit_cast<float>(u); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { volatile float r = a + b; return r; }
inline float __fsub_rn(float a, float b) { volatile float r = a - b; return r; }
template <typename T> T __ldg(const T* p) { return *p; }
template <typename F> uint32_t exchange(uint32_t v, F f) { auto& w = my_warp(); int l = threadIdx.x % 32; w.v[l] = v; emu::wait(w.bar, 32); uint32_t r = f(w.v, l); emu::wait(w.bar, 32); return r; }
inline void __syncwarp() { emu::wait(my_warp().bar, 32); }
inline bool __syncthreads_or(bool c) { if (c) emu::group_flag[0] = 1; emu::wait(emu::block_bar, 640); return emu::group_flag[0]; }
inline void __syncthreads() { emu::wait(emu::block_bar, 640); }
template <typename T> T __shfl_sync(unsigned, T v, int s) { return std::bit_cast<T>(exchange(std::bit_cast<uint32_t>(v), [&](uint32_t* q, int) { return q[s]; })); }
template <typename T> T __shfl_xor_sync(unsigned, T v, int s) { return std::bit_cast<T>(exchange(std::bit_cast<uint32_t>(v), [&](uint32_t* q, int l) { return q[l ^ s]; })); }
inline bool __any_sync(unsigned, bool c) { return exchange(c, [&](uint32_t* q, int) { uint32_t r = 0; for (int i = 0; i < 32; ++i) r |= q[i]; return r; }); }
namespace volup::ptx {
inline float exp2_approximate(float x) { return exp2f(x); }
inline float log2_approximate(float x) { return log2f(x); }
inline float reciprocal_approximate(float x) { return 1 / x; }
inline float minimum_keeping_nan(float a, float b) { return isnan(a) || isnan(b) ? NAN : a < b ? a : b; }
inline float maximum_keeping_nan(float a, float b) { return isnan(a) || isnan(b) ? __uint_as_float(0x7fffffff) : a > b ? a : b; }
template <typename T> T keep(T v) { return v; }
inline uint32_t shared_address(const void* p) { emu::smem = (float*)p; return 1024; }
inline void copy_async_16(uint32_t at, const void* g) { memcpy((char*)emu::smem + (at - 1024), g, 16); }
inline void wait_for_copies() {} inline void fence_proxy_async() {} inline void wgmma_fence() {} inline void wgmma_commit() {}
template <int k> void wgmma_wait() {}
template <int k> void hold(float (&)[k]) {}
inline uint32_t matrix_descriptor_low(uint32_t a) { return (a & 0x3ffffu) >> 4 | 128u >> 4 << 16; }
inline uint64_t matrix_descriptor(uint32_t low) { return low | uint64_t{256 >> 4} << 32; }
inline float cut(uint32_t b) { return __uint_as_float(b & 0xffffe000u); }
template <bool kAccumulate> void wgmma_m64n32k8_tf32(float (&d)[16], const uint32_t (&a)[4], uint64_t b) {
  auto& w = my_warp(); int l = threadIdx.x % 32, g = l / 4, t = l % 4; memcpy(w.a[l], a, 16); emu::wait(w.bar, 32);
  const char* base = (const char*)emu::smem + (((b & 0x3fff) << 4) - 1024);
  const int lbo = (b >> 16 & 0x3fff) << 4, sbo = (b >> 32 & 0x3fff) << 4;
  for (int i = 0; i < 16; ++i) { int row = g + 8 * (i / 2 % 2), col = i / 4 * 8 + 2 * t + i % 2; float s = 0;
    for (int k = 0; k < 8; ++k) { float x = cut(w.a[(row % 8) * 4 + k % 4][k / 4 * 2 + row / 8]); uint32_t y; memcpy(&y, base + k / 4 * lbo + col / 8 * sbo + col % 8 * 16 + k % 4 * 4, 4); s = fmaf(x, cut(y), s); }
    d[i] = kAccumulate ? d[i] + s : s; }
  emu::wait(w.bar, 32); }

inline float round_to_tf32(float v) { uint32_t b = __float_as_uint(v); if ((b & 0x7f800000) == 0x7f800000) return v; return __uint_as_float((b + 0xfff + (b >> 13 & 1)) & ~0x1fffu); }
template <typename T> void store_global(void* at, T v) { memcpy(at, &v, sizeof v); }
}
