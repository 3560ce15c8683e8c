// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "cpu/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace volup::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

#if defined(__x86_64__)
// Twelve sums, enough to hide the latency of four cycles behind two units.
#define VOLUP_TWELVE_SUMS(step) \
  step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7) step(8) step(9) step(10) step(11)

__attribute__((target("avx2,fma"))) void multiply_add_avx2(int64_t turns) {
  const __m256 a = _mm256_set1_ps(0.5f);
#define VOLUP_DECLARE(i) __m256 s##i = _mm256_set1_ps(i);
#define VOLUP_STEP(i) asm volatile("vfmadd231ps %1, %1, %0" : "+x"(s##i) : "x"(a));
  VOLUP_TWELVE_SUMS(VOLUP_DECLARE)
  for (int64_t turn = 0; turn < turns; ++turn) {
    VOLUP_TWELVE_SUMS(VOLUP_STEP)
  }
#undef VOLUP_STEP
#undef VOLUP_DECLARE
}

__attribute__((target("avx512f"))) void multiply_add_avx512(int64_t turns) {
  const __m512 a = _mm512_set1_ps(0.5f);
#define VOLUP_DECLARE(i) __m512 s##i = _mm512_set1_ps(i);
#define VOLUP_STEP(i) asm volatile("vfmadd231ps %1, %1, %0" : "+v"(s##i) : "v"(a));
  VOLUP_TWELVE_SUMS(VOLUP_DECLARE)
  for (int64_t turn = 0; turn < turns; ++turn) {
    VOLUP_TWELVE_SUMS(VOLUP_STEP)
  }
#undef VOLUP_STEP
#undef VOLUP_DECLARE
}
#undef VOLUP_TWELVE_SUMS

__attribute__((target("avx2"))) void copy_past_caches(char* to, const char* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 32) {
    const auto* source = reinterpret_cast<const __m256i*>(from + i);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), _mm256_load_si256(source));
  }
  _mm_sfence();
}
#endif

}  // namespace

double multiply_add_rate(Device& device) {
#if defined(__x86_64__)
  const CpuIsa isa = device.properties().isa;
  if (isa == CpuIsa::kPortable) return 0;
  const bool wide = isa == CpuIsa::kAvx512;
  constexpr int64_t kTurns = 300'000;
  ThreadPool& threads = *device.threads();
  double best = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const auto begin = Clock::now();
    threads.run(threads.size(), [&](int64_t, int) {
      wide ? multiply_add_avx512(kTurns) : multiply_add_avx2(kTurns);
    });
    const double done = static_cast<double>(kTurns) * 12 * (wide ? 16 : 8) * threads.size();
    best = std::max(best, done / seconds_since(begin));
  }
  return best;
#else
  static_cast<void>(device);
  return 0;
#endif
}

double copy_rate(Device& device) {
  ThreadPool& threads = *device.threads();
  const size_t part = size_t{64} << 20;
  const size_t bytes = part * static_cast<size_t>(threads.size());
  auto from = device.allocate(bytes);
  auto to = device.allocate(bytes);
  double best = 0;
  if (from.ok() && to.ok()) {
    std::memset(*from, 1, bytes);
    std::memset(*to, 2, bytes);
    for (int repeat = 0; repeat < 8; ++repeat) {
      const auto begin = Clock::now();
      threads.run(threads.size(), [&](int64_t task, int) {
        char* target = static_cast<char*>(*to) + part * static_cast<size_t>(task);
        const char* source = static_cast<const char*>(*from) + part * static_cast<size_t>(task);
#if defined(__x86_64__)
        if (device.properties().isa != CpuIsa::kPortable) {
          copy_past_caches(target, source, part);
          return;
        }
#endif
        std::memcpy(target, source, part);
      });
      best = std::max(best, 2.0 * static_cast<double>(bytes) / seconds_since(begin));
    }
  }
  if (from.ok()) device.free(*from);
  if (to.ok()) device.free(*to);
  return best;
}

}  // namespace volup::bench
