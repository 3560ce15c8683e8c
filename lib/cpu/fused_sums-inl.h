// SPDX-License-Identifier: Apache-2.0
//
// The inner kernel of cpu/fused: sums of a block of channels over a few vectors along W, held in
// registers, for one phase; and what is done with them while they are there. Included once an
// instruction set.
#include <array>
#include <utility>

#include "cpu/fused_plan.h"
#include "cpu/vector_math-inl.h"
#include "hwy/highway.h"

#if defined(VOLUP_CPU_FUSED_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLUP_CPU_FUSED_SUMS_INL_H_
#undef VOLUP_CPU_FUSED_SUMS_INL_H_
#else
#define VOLUP_CPU_FUSED_SUMS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace volup {
namespace HWY_NAMESPACE {

// Sums of several base rows that have the same taps.
struct SumsArguments {
  const float* x;         // copied input at the first row and the first column
  const int32_t* offset;  // of the phase's steps
  const float* weight;    // [steps, channels]
  const float* bias;      // [channels]
  const FusedRun* runs;   // in tap rows
  int32_t run_count;
  int32_t steps_per_row;
  int32_t rows;
  int32_t pieces;     // of a row, kVectors vectors each
  int64_t x_row;      // floats from row to row of x
  float* sums;        // [channels, rows, columns]
  int64_t channel;    // floats from channel to channel of sums
  int64_t row;        // floats from row to row of sums and of per_column
  int64_t phase;      // floats from phase to phase of both, where phases are summed together
  float* per_column;  // [rows, columns]
};

enum class Then {
  kStore,           // sums = s
  kStoreMax,        // the same, and per_column = max(per_column, s); not of pairs
  kAddExp2,         // per_column += 2^s, sums untouched
  kAddExp2InRange,  // the same, where every s is known to be in exp2_in_range's range
  // Of pairs alone:
  kStoreExp2InRange,  // the same, and sums = 2^s
  kFinish             // the outputs themselves
};

// s += w * x. GCC may let the result live where w was; sums would wander from register to register
// and spill.
HWY_INLINE void add_product(VF w, VF x, VF& s) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  asm("vfmadd231ps %2, %1, %0" : "+v"(s.raw) : "v"(w.raw), "v"(x.raw));
#else
  s = hn::MulAdd(w, x, s);
#endif
}

// The compiler moves no load across.
HWY_INLINE void keep_order() { asm volatile("" ::: "memory"); }

// s[c][v] += weight[c] * in[v]
template <int kBegin, int kEnd, int kChannels, int kVectors>
HWY_INLINE void add_tap(const VF (&in)[kVectors], const float* weight,
                        VF (&s)[kChannels][kVectors]) {
#pragma GCC unroll 16
  for (int c = kBegin; c < kEnd; ++c) {
    const VF w = set(weight[c]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) add_product(w, in[v], s[c][v]);
  }
}

template <int kChannels, int kVectors>
HWY_INLINE void add_step(const float* x, const float* weight, VF (&s)[kChannels][kVectors]) {
  VF in[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) in[v] = hn::LoadU(D(), x + v * kLanes);
  add_tap<0, kChannels>(in, weight, s);
}

template <int kChannels, int kVectors, Then kThen>
HWY_INLINE void put_sums(const VF (&s)[kChannels][kVectors], float* HWY_RESTRICT sums,
                         int64_t stride, float* HWY_RESTRICT per_column) {
  const D d;
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    if constexpr (kThen == Then::kStore || kThen == Then::kStoreMax) {
#pragma GCC unroll 16
      for (int c = 0; c < kChannels; ++c) hn::Store(s[c][v], d, sums + c * stride + v * kLanes);
    }
    if constexpr (kThen != Then::kStore) {
      VF total = hn::Load(d, per_column + v * kLanes);
#pragma GCC unroll 16
      for (int c = 0; c < kChannels; ++c) {
        if constexpr (kThen == Then::kStoreMax) {
          total = hn::Max(total, s[c][v]);
        } else if constexpr (kThen == Then::kAddExp2InRange) {
          total = hn::Add(total, exp2_in_range(s[c][v]));
        } else {
          total = hn::Add(total, exp2_clamped(s[c][v]));
        }
      }
      hn::Store(total, d, per_column + v * kLanes);
    }
  }
}

template <int kChannels, int kVectors>
HWY_INLINE void add_runs(const SumsArguments& a, const float* x, VF (&s)[kChannels][kVectors]) {
  for (int32_t run = 0; run < a.run_count; ++run) {
    const int64_t begin = int64_t{a.runs[run].begin} * a.steps_per_row;
    int64_t left = int64_t{a.runs[run].count} * a.steps_per_row;
    const int32_t* offset = a.offset + begin;
    const float* weight = a.weight + begin * kChannels;
    // Three steps a turn: fewer branches, and Cin = 3 is whole turns.
    for (; left >= 3; left -= 3, offset += 3, weight += 3 * kChannels) {
      // Hoisted out of their step, loads would push sums out of the registers.
      add_step(x + offset[0], weight, s);
      keep_order();
      add_step(x + offset[1], weight + kChannels, s);
      keep_order();
      add_step(x + offset[2], weight + 2 * kChannels, s);
      keep_order();
    }
    for (; left > 0; --left, ++offset, weight += kChannels) add_step(x + *offset, weight, s);
  }
}

// Sanitizers would take many minutes to compile this, and check each register; the tests' guards
// and poison around the scratch that it works on stand in for them.
template <int kChannels, int kVectors, Then kThen>
__attribute__((no_sanitize("address", "thread", "undefined"))) HWY_NOINLINE void block_sums(
    const SumsArguments& a) {
  for (int32_t row = 0; row < a.rows; ++row) {
    const float* x = a.x + row * a.x_row;
    int64_t to = row * a.row;
    for (int32_t piece = 0; piece < a.pieces; ++piece) {
      VF s[kChannels][kVectors];
#pragma GCC unroll 16
      for (int c = 0; c < kChannels; ++c) {
        const VF bias = set(a.bias[c]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) s[c][v] = bias;
      }
      add_runs(a, x, s);
      put_sums<kChannels, kVectors, kThen>(s, a.sums + to, a.channel, a.per_column + to);
      x += kVectors * kLanes;
      to += kVectors * kLanes;
    }
  }
}

using SumsFunction = void (*)(const SumsArguments&);

// block_sums by number of channels, from 1.
template <int kVectors, Then kThen, int... kChannels>
constexpr std::array<SumsFunction, sizeof...(kChannels)> sums_row(
    std::integer_sequence<int, kChannels...>) {
  return {block_sums<kChannels + 1, kVectors, kThen>...};
}

#if HWY_TARGET == HWY_AVX3
inline constexpr int kSums = 24;
#else
inline constexpr int kSums = 12;
#endif

template <Then kThen>
SumsFunction sums_function(int channels, int vectors) {
  static constexpr auto kOne = sums_row<1, kThen>(std::make_integer_sequence<int, 12>());
  static constexpr auto kTwo = sums_row<2, kThen>(std::make_integer_sequence<int, kSums / 2>());
  static constexpr auto kFour = sums_row<4, kThen>(std::make_integer_sequence<int, kSums / 4>());
  const auto at = static_cast<size_t>(channels - 1);
  return vectors == 4 ? kFour[at] : vectors == 2 ? kTwo[at] : kOne[at];
}

}  // namespace HWY_NAMESPACE
}  // namespace volup
HWY_AFTER_NAMESPACE();

#endif  // VOLUP_CPU_FUSED_SUMS_INL_H_
