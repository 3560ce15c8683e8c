// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 by the x86 SHA extensions, where the CPU has them. Register order is that of the
// instructions: sha256rnds2 wants the state as {a, b, e, f} and {c, d, g, h}, a in the highest
// lane.
#include "load/sha256.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace volup {

#if defined(__x86_64__)
namespace {

#define VOLUP_SHA_TARGET __attribute__((target("sha,sse4.1,ssse3")))

VOLUP_SHA_TARGET void compress(Sha256State& state, const unsigned char* blocks, size_t count) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const auto load = [](const void* at) VOLUP_SHA_TARGET {
    return _mm_loadu_si128(static_cast<const __m128i*>(at));
  };
  // {a, b, c, d}, {e, f, g, h} in memory; _mm_shuffle names lanes from the highest.
  const __m128i cdab = _mm_shuffle_epi32(load(state.data()), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(load(state.data() + 4), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);

  for (; count > 0; --count, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i words[4];  // a ring: four message words each
    for (int i = 0; i < 4; ++i) words[i] = _mm_shuffle_epi8(load(blocks + 16 * i), big_endian);
#pragma GCC unroll 16
    for (int group = 0; group < 16; ++group) {
      const __m128i now = words[group & 3];
      const __m128i sum = _mm_add_epi32(now, load(kSha256Round.data() + 4 * group));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      if (group < 12) {
        // Words 16 further on: W[t-16] + s0(W[t-15]) + W[t-7] + s1(W[t-2]).
        const __m128i last = words[(group + 3) & 3], before_last = words[(group + 2) & 3];
        const __m128i partial = _mm_add_epi32(_mm_sha256msg1_epu32(now, words[(group + 1) & 3]),
                                              _mm_alignr_epi8(last, before_last, 4));
        words[group & 3] = _mm_sha256msg2_epu32(partial, last);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }

  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  auto* const out = reinterpret_cast<__m128i*>(state.data());
  _mm_storeu_si128(out, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(out + 1, _mm_alignr_epi8(dchg, feba, 8));
}

bool has_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  const bool has_sse = (c & bit_SSSE3) != 0 && (c & bit_SSE4_1) != 0;
  return has_sse && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}

}  // namespace

const Sha256Compressor* sha_ni_sha256() {
  static constexpr Sha256Compressor kShaNi = {"sha-ni", compress};
  static const bool is_there = has_instructions();
  return is_there ? &kShaNi : nullptr;
}

#else

const Sha256Compressor* sha_ni_sha256() { return nullptr; }

#endif

}  // namespace volup
