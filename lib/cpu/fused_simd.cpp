// SPDX-License-Identifier: Apache-2.0
//
// Compiles the vector code of cpu/fused for each instruction set and names the results. The choice
// among them is a function of DeviceProperties and not Highway's own, which would need its library.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/fused_simd.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include "cpu/fused_simd.h"
#include "cpu/fused_task-inl.h"
#include "cpu/vector_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace volup {
namespace HWY_NAMESPACE {

void run_task(const FusedTask& task) { TaskRunner(task).run(); }

// Applies function to count values, the last ones through a padded vector.
template <typename Function>
void map(const float* in, float* out, int64_t count, const Function& function) {
  const D d;
  for (int64_t i = 0; i < count; i += kLanes) {
    HWY_ALIGN float lanes[kLanes] = {};
    const int64_t now = std::min<int64_t>(kLanes, count - i);
    std::copy_n(in + i, now, lanes);
    hn::Store(function(hn::Load(d, lanes)), d, lanes);
    std::copy_n(lanes, now, out + i);
  }
}

void map_exp(const float* in, float* out, int64_t count) {
  map(in, out, count, [](VF v) HWY_ATTR { return exp(v); });
}
void map_log(const float* in, float* out, int64_t count) {
  map(in, out, count, [](VF v) HWY_ATTR { return log_of_normal(v); });
}

FusedTarget make_target(const char* name) {
  return {name, kLanes, kSums, run_task, map_exp, map_log};
}

}  // namespace HWY_NAMESPACE
}  // namespace volup
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volup {

const FusedTarget& fused_target(CpuIsa isa) {
#if HWY_TARGETS & HWY_AVX3
  static const FusedTarget kAvx512 = N_AVX3::make_target("avx512");
  if (isa == CpuIsa::kAvx512) return kAvx512;
#endif
#if HWY_TARGETS & HWY_AVX2
  static const FusedTarget kAvx2 = N_AVX2::make_target("avx2");
  if (isa >= CpuIsa::kAvx2) return kAvx2;
#endif
  static const FusedTarget kBaseline = HWY_STATIC_DISPATCH(make_target)("portable");
  return kBaseline;
}

}  // namespace volup
#endif
