// SPDX-License-Identifier: Apache-2.0
//
// Rows between memory in the I/O type and floats in scratch, and the interleaving of two phases.
// Included once an instruction set.
#include <bit>
#include <cstdint>
#include <cstring>

#include "cpu/vector_math-inl.h"
#include "half.h"
#include "hwy/highway.h"

#if defined(VOLUP_CPU_VECTOR_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLUP_CPU_VECTOR_ROWS_INL_H_
#undef VOLUP_CPU_VECTOR_ROWS_INL_H_
#else
#define VOLUP_CPU_VECTOR_ROWS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace volup {
namespace HWY_NAMESPACE {

HWY_INLINE void copy_floats(const float* from, int64_t count, float* to) {
  const D d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  for (; i < count; ++i) to[i] = from[i];
}

HWY_INLINE void floats_from_fp16(const uint16_t* from, int64_t count, float* to) {
  int64_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Rebind<hwy::float16_t, D> half;
  for (; i + kLanes <= count; i += kLanes) {
    const auto* at = reinterpret_cast<const hwy::float16_t*>(from + i);
    hn::StoreU(hn::PromoteTo(D(), hn::LoadU(half, at)), D(), to + i);
  }
#endif
  for (; i < count; ++i) to[i] = float_from_fp16(from[i]);
}

HWY_INLINE void fp16_from_floats(const float* from, int64_t count, uint16_t* to) {
  int64_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Rebind<hwy::float16_t, D> half;
  for (; i + kLanes <= count; i += kLanes) {
    auto* at = reinterpret_cast<hwy::float16_t*>(to + i);
    hn::StoreU(hn::DemoteTo(half, hn::LoadU(D(), from + i)), half, at);
  }
#endif
  for (; i < count; ++i) to[i] = fp16_from(double{from[i]});
}

// Plain loops of integers, which compilers turn into vectors.
HWY_INLINE void floats_from_bf16(const uint16_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = float_from_bf16(from[i]);
}

HWY_INLINE void bf16_from_floats(const float* from, int64_t count, uint16_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    to[i] = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
}

// count elements of a tensor of type io, from element at on.
HWY_INLINE void load_row(DType io, const void* tensor, int64_t at, int64_t count, float* to) {
  if (io == DType::kFp32) {
    copy_floats(static_cast<const float*>(tensor) + at, count, to);
  } else if (io == DType::kFp16) {
    floats_from_fp16(static_cast<const uint16_t*>(tensor) + at, count, to);
  } else {
    floats_from_bf16(static_cast<const uint16_t*>(tensor) + at, count, to);
  }
}

HWY_INLINE void store_row(DType io, const float* from, int64_t count, void* tensor, int64_t at) {
  if (io == DType::kFp32) {
    copy_floats(from, count, static_cast<float*>(tensor) + at);
  } else if (io == DType::kFp16) {
    fp16_from_floats(from, count, static_cast<uint16_t*>(tensor) + at);
  } else {
    bf16_from_floats(from, count, static_cast<uint16_t*>(tensor) + at);
  }
}

struct Pair {
  VF first, second;
};

// a0 b0 a1 b1 ... in two vectors.
HWY_INLINE Pair interleave(VF a, VF b) {
  const D d;
#if HWY_TARGET == HWY_AVX3
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high =
      _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  static_cast<void>(d);
  return {VF{_mm512_permutex2var_ps(a.raw, low, b.raw)},
          VF{_mm512_permutex2var_ps(a.raw, high, b.raw)}};
#elif HWY_TARGET == HWY_SCALAR
  static_cast<void>(d);
  return {a, b};
#else
  const VF low = hn::InterleaveLower(d, a, b);
  const VF high = hn::InterleaveUpper(d, a, b);
#if HWY_TARGET == HWY_AVX2
  return {hn::ConcatLowerLower(d, high, low), hn::ConcatUpperUpper(d, high, low)};
#else
  return {low, high};
#endif
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace volup
HWY_AFTER_NAMESPACE();

#endif  // VOLUP_CPU_VECTOR_ROWS_INL_H_
