// SPDX-License-Identifier: Apache-2.0
//
// exp, log and what the epilogues make of them, on vectors. Included once an instruction set. The
// bounds stated here are measured by tests/cpu/vector_math_test.cpp.
#include <limits>

#include "hwy/highway.h"

#if defined(VOLUP_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLUP_CPU_VECTOR_MATH_INL_H_
#undef VOLUP_CPU_VECTOR_MATH_INL_H_
#else
#define VOLUP_CPU_VECTOR_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace volup {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using VF = hn::Vec<D>;
using VI = hn::Vec<DI>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));

HWY_INLINE VF set(float value) { return hn::Set(D(), value); }

// The larger or smaller of both; v where v is NaN. x86 returns the second operand there.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
HWY_INLINE VF at_least(float bound, VF v) { return hn::Max(set(bound), v); }
HWY_INLINE VF at_most(float bound, VF v) { return hn::Min(set(bound), v); }
#else
HWY_INLINE VF at_least(float bound, VF v) {
  return hn::IfThenElse(hn::Lt(v, set(bound)), set(bound), v);
}
HWY_INLINE VF at_most(float bound, VF v) {
  return hn::IfThenElse(hn::Gt(v, set(bound)), set(bound), v);
}
#endif

// v * 2^n for v in [1/2, 2) and integral n such that the result is normal, or infinity for v = 1;
// NaN for NaN.
HWY_INLINE VF scale_by_power(VF v, VF n) {
#if HWY_TARGET == HWY_AVX3
  return VF{_mm512_scalef_ps(v.raw, n.raw)};
#elif HWY_TARGET == HWY_AVX2
  // NaN converts to a value whose low bits are 0, so that a NaN v stays one.
  const __m256i bits = _mm256_slli_epi32(_mm256_cvtps_epi32(n.raw), 23);
  return VF{_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(v.raw), bits))};
#else
  const VI bits = hn::ShiftLeft<23>(hn::NearestInt(n));
  const VF scaled = hn::BitCast(D(), hn::Add(hn::BitCast(DI(), v), bits));
  return hn::IfThenElse(hn::Eq(v, v), scaled, v);
#endif
}

// 2^(n + f) for integral n, f in [-1/2, 1/2], and n + f in [-126, 128]: relative error below 3e-7;
// NaN for NaN.
HWY_INLINE VF exp2_of_parts(VF n, VF f) {
  // Minimax with 1 for f = 0, 9.3e-8.
  VF p = set(0.0013269521f);
  p = hn::MulAdd(p, f, set(0.009671291f));
  p = hn::MulAdd(p, f, set(0.05550711f));
  p = hn::MulAdd(p, f, set(0.24022247f));
  p = hn::MulAdd(p, f, set(0.693147f));
  p = hn::MulAdd(p, f, set(1.0f));
  return scale_by_power(p, n);
}

// 2^y for y in [-126, 128].
HWY_INLINE VF exp2_in_range(VF y) {
  const VF n = hn::Round(y);
  return exp2_of_parts(n, hn::Sub(y, n));
}

// The same of the nearest y in that range.
HWY_INLINE VF exp2_clamped(VF y) { return exp2_in_range(at_most(128.0f, at_least(-126.0f, y))); }

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2 = 0.693147181f;

// exp(v) for v in [-87.3, 88.7]: relative error below 3e-7 * max(1, |v| / 8); 8e-7 in place
// of 3e-7 where there is no FMA.
HWY_INLINE VF exp_in_range(VF v) {
  const VF n = hn::Round(hn::Mul(v, set(kLog2E)));
  return exp2_of_parts(n, hn::MulSub(v, set(kLog2E), n));
}

// The same for every v; 0 below the range, infinity above, NaN for NaN.
HWY_INLINE VF exp(VF v) {
  constexpr float kLowest = -87.33f;   // log(2^-126)
  constexpr float kHighest = 88.722f;  // log(2^128)
  const VF e = exp_in_range(at_most(kHighest, at_least(kLowest, v)));
  const VF infinity = set(std::numeric_limits<float>::infinity());
  return hn::IfThenElse(hn::Gt(v, set(kHighest)), infinity,
                        hn::IfThenZeroElse(hn::Lt(v, set(kLowest)), e));
}

// log(v) for normal v > 0: absolute error below 1.3e-7 * max(1, |log(v)|).
HWY_INLINE VF log_of_normal(VF v) {
  const DI di;
  // v = 2^e * m with m in [sqrt(1/2), sqrt(2)).
  const VI bits = hn::BitCast(di, v);
  const VI e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const VF m = hn::BitCast(D(), hn::Sub(bits, hn::ShiftLeft<23>(e)));
  // log(m) = 2 * atanh(r)
  const VF r = hn::Div(hn::Sub(m, set(1.0f)), hn::Add(m, set(1.0f)));
  const VF r2 = hn::Mul(r, r);
  VF p = set(2.0f / 9);
  p = hn::MulAdd(p, r2, set(2.0f / 7));
  p = hn::MulAdd(p, r2, set(2.0f / 5));
  p = hn::MulAdd(p, r2, set(2.0f / 3));
  p = hn::MulAdd(p, r2, set(2.0f));
  return hn::MulAdd(hn::ConvertTo(D(), e), set(kLn2), hn::Mul(p, r));
}

// sigmoid(p) for p in [0, 1], absolute error below 2^-23; NaN for NaN.
HWY_INLINE VF sigmoid_of_share(VF p) {
  // Minimax, 7.5e-9.
  VF s = set(-0.0005101672193f);
  s = hn::MulAdd(s, p, set(0.002635545729f));
  s = hn::MulAdd(s, p, set(-0.0003165578964f));
  s = hn::MulAdd(s, p, set(-0.02073668537f));
  s = hn::MulAdd(s, p, set(-1.434942249e-5f));
  s = hn::MulAdd(s, p, set(0.2500008077f));
  return hn::MulAdd(s, p, set(0.4999999926f));
}

}  // namespace HWY_NAMESPACE
}  // namespace volup
HWY_AFTER_NAMESPACE();

#endif  // VOLUP_CPU_VECTOR_MATH_INL_H_
