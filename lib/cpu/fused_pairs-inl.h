// SPDX-License-Identifier: Apache-2.0
//
// The inner kernel of cpu/fused where both phases along W are summed together (FusedPlan::pairs):
// what one phase loads serves the other, and neighbouring outputs are in registers at the same
// time, so that a value can be finished and stored from there. Included once an instruction set.
#include <array>
#include <utility>

#include "cpu/fused_sums-inl.h"
#include "cpu/vector_math-inl.h"
#include "cpu/vector_rows-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#if defined(VOLUP_CPU_FUSED_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLUP_CPU_FUSED_PAIRS_INL_H_
#undef VOLUP_CPU_FUSED_PAIRS_INL_H_
#else
#define VOLUP_CPU_FUSED_PAIRS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace volup {
namespace HWY_NAMESPACE {

// Constants of add_hardswish.
struct Hardswish {
  explicit Hardswish(const Epilogue& e)
      : shift(e.shift), clamp_min(e.clamp_min), clamp_max(e.clamp_max), scale(1.0f / e.divisor) {}

  VF operator()(VF t) const {
    const VF clamped = at_most(clamp_max, at_least(clamp_min, hn::Add(t, set(shift))));
    return hn::Mul(hn::Mul(t, hn::Mul(clamped, set(scale))), t);
  }

  float shift, clamp_min, clamp_max, scale;
};

// Where finished rows go: from here for Then::kFinish; later, and asked for here, for
// Then::kStoreExp2InRange.
struct Finish {
  explicit Finish(const Epilogue& epilogue) : hardswish(epilogue) {}

  Hardswish hardswish;
  const float* add = nullptr;  // null: identity
  float* out = nullptr;        // null: not from here, and not to be asked for
  int64_t channel = 0;         // floats from channel to channel of out and add
  int64_t row = 0;             // floats from base row to base row
};

HWY_INLINE void put(VF v, float* to, bool stream) {
  if (stream) {
    hn::Stream(v, D(), to);
  } else {
    hn::StoreU(v, D(), to);
  }
}

// Sets of sums: phase 0, phase 1, and where few channels leave registers free, phase 1's products
// with the neighbour apart, since additions to one sum wait for each other. Not a matter of
// kVectors: the order of additions is the same in every column.
template <int kChannels>
inline constexpr int kSets = 6 * kChannels <= kSums ? 3 : 2;

template <int kChannels, int kVectors>
using PairSums = VF[kSets<kChannels>][kChannels][kVectors];

// One channel in: its three taps along W.
template <int kChannels, int kVectors>
HWY_INLINE void add_pair_step(const float* x, const float* weight,
                              PairSums<kChannels, kVectors>& s) {
  VF in[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) in[v] = hn::LoadU(D(), x + v * kLanes);
  // Phase 1's two sums are as far apart as can be, for the latency of an addition.
  constexpr int kBefore = kChannels / 3;
  add_tap<0, kBefore>(in, weight, s[0]);
  keep_order();
  add_tap<0, kChannels>(in, weight + kChannels, s[1]);
  keep_order();
  add_tap<kBefore, kChannels>(in, weight, s[0]);
  keep_order();
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) in[v] = hn::LoadU(D(), x + 1 + v * kLanes);
  add_tap<0, kChannels>(in, weight + 2 * kChannels, s[kSets<kChannels> - 1]);
  keep_order();
}

template <int kChannels, int kVectors>
HWY_INLINE void add_pair_runs(const SumsArguments& a, const float* x,
                              PairSums<kChannels, kVectors>& s) {
  for (int32_t run = 0; run < a.run_count; ++run) {
    const int64_t begin = int64_t{a.runs[run].begin} * a.steps_per_row;
    const int32_t* offset = a.offset + begin;
    const int32_t* const end = offset + int64_t{a.runs[run].count} * a.steps_per_row;
    const float* weight = a.weight + begin * 3 * kChannels;
    // Three steps a turn: fewer branches, and Cin = 3 is whole turns.
    for (; end - offset >= 3; offset += 3, weight += 9 * kChannels) {
      add_pair_step<kChannels, kVectors>(x + offset[0], weight, s);
      add_pair_step<kChannels, kVectors>(x + offset[1], weight + 3 * kChannels, s);
      add_pair_step<kChannels, kVectors>(x + offset[2], weight + 6 * kChannels, s);
    }
    for (; offset < end; ++offset, weight += 3 * kChannels)
      add_pair_step<kChannels, kVectors>(x + *offset, weight, s);
  }
}

// All of add is read before anything is stored: a load waits for earlier stores whose addresses
// have the same last 12 bits, as those of neighbouring channels often do.
template <int kChannels, int kVectors>
HWY_INLINE void finish_pairs(const PairSums<kChannels, kVectors>& s, const Finish& to, int64_t at) {
  Pair pairs[kChannels][kVectors];
#pragma GCC unroll 16
  for (int c = 0; c < kChannels; ++c) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      Pair& pair = pairs[c][v];
      pair = interleave(s[0][c][v], s[1][c][v]);
      if (to.add != nullptr) {
        const float* add = to.add + at + c * to.channel + 2 * v * kLanes;
        pair.first = hn::Add(pair.first, hn::LoadU(D(), add));
        pair.second = hn::Add(pair.second, hn::LoadU(D(), add + kLanes));
      }
    }
  }
#pragma GCC unroll 16
  for (int c = 0; c < kChannels; ++c) {
    float* out = to.out + at + c * to.channel;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v, out += 2 * kLanes) {
      Pair pair = pairs[c][v];
      if (to.add != nullptr) {
        pair.first = to.hardswish(pair.first);
        pair.second = to.hardswish(pair.second);
      }
      hn::StoreU(pair.first, D(), out);
      hn::StoreU(pair.second, D(), out + kLanes);
    }
  }
}

template <int kChannels, int kVectors, Then kThen>
HWY_INLINE void put_pairs(const PairSums<kChannels, kVectors>& s, const SumsArguments& a,
                          int64_t to) {
  const D d;
#pragma GCC unroll 2
  for (int rx = 0; rx < 2; ++rx) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = to + rx * a.phase + v * kLanes;
      if constexpr (kThen == Then::kStore) {
#pragma GCC unroll 16
        for (int c = 0; c < kChannels; ++c) {
          hn::Store(s[rx][c][v], d, a.sums + at + c * a.channel);
        }
      } else {
        VF total = hn::Load(d, a.per_column + at);
#pragma GCC unroll 16
        for (int c = 0; c < kChannels; ++c) {
          const VF e =
              kThen == Then::kAddExp2 ? exp2_clamped(s[rx][c][v]) : exp2_in_range(s[rx][c][v]);
          if constexpr (kThen == Then::kStoreExp2InRange) {
            hn::Store(e, d, a.sums + at + c * a.channel);
          }
          total = hn::Add(total, e);
        }
        hn::Store(total, d, a.per_column + at);
      }
    }
  }
}

// Asks for kChannels runs of count floats from at + c * channel on.
template <int kChannels>
HWY_INLINE void prefetch(const float* at, int64_t channel, int64_t count) {
  constexpr int64_t kLine = 16;
#pragma GCC unroll 16
  for (int c = 0; c < kChannels; ++c) {
    for (int64_t i = 0; i < count; i += kLine) hwy::Prefetch(at + c * channel + i);
  }
}

// As block_sums, for both phases along W.
template <int kChannels, int kVectors, Then kThen>
__attribute__((no_sanitize("address", "thread", "undefined"))) HWY_NOINLINE void block_pairs(
    const SumsArguments& a, const Finish& finish) {
  constexpr int kColumns = kVectors * kLanes;
  const bool adds = kThen == Then::kFinish && finish.add != nullptr;
  const bool asks =
      kThen == Then::kFinish || (kThen == Then::kStoreExp2InRange && finish.out != nullptr);
  if (adds) prefetch<kChannels>(finish.add, finish.channel, a.pieces * 2 * kColumns);
  for (int32_t row = 0; row < a.rows; ++row) {
    const float* x = a.x + row * a.x_row;
    int64_t to = row * a.row;
    int64_t out = row * finish.row;
    for (int32_t piece = 0; piece < a.pieces; ++piece) {
      if (adds && row + 1 < a.rows) {
        prefetch<kChannels>(finish.add + out + finish.row, finish.channel, 2 * kColumns);
      }
      // Plain stores wait less for lines that come while sums are made.
      if (asks) prefetch<kChannels>(finish.out + out, finish.channel, 2 * kColumns);
      PairSums<kChannels, kVectors> s;
#pragma GCC unroll 16
      for (int c = 0; c < kChannels; ++c) {
        const VF bias = set(a.bias[c]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          s[0][c][v] = s[1][c][v] = bias;
          if (kSets<kChannels> == 3) s[kSets<kChannels> - 1][c][v] = set(0.0f);
        }
      }
      add_pair_runs<kChannels, kVectors>(a, x, s);
      if (kSets<kChannels> == 3) {
#pragma GCC unroll 16
        for (int c = 0; c < kChannels; ++c) {
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) {
            s[1][c][v] = hn::Add(s[1][c][v], s[kSets<kChannels> - 1][c][v]);
          }
        }
      }
      if constexpr (kThen == Then::kFinish) {
        finish_pairs<kChannels, kVectors>(s, finish, out);
      } else {
        put_pairs<kChannels, kVectors, kThen>(s, a, to);
      }
      x += kColumns;
      to += kColumns;
      out += 2 * kColumns;
    }
  }
}

using PairsFunction = void (*)(const SumsArguments&, const Finish&);

// block_pairs by number of channels, from 1.
template <int kVectors, Then kThen, int... kChannels>
constexpr std::array<PairsFunction, sizeof...(kChannels)> pairs_row(
    std::integer_sequence<int, kChannels...>) {
  return {block_pairs<kChannels + 1, kVectors, kThen>...};
}

template <Then kThen>
PairsFunction pairs_function(int channels, int vectors) {
  static constexpr auto kOne = pairs_row<1, kThen>(std::make_integer_sequence<int, kSums / 2>());
  static constexpr auto kTwo = pairs_row<2, kThen>(std::make_integer_sequence<int, kSums / 4>());
  const auto at = static_cast<size_t>(channels - 1);
  return vectors == 2 ? kTwo[at] : kOne[at];
}

}  // namespace HWY_NAMESPACE
}  // namespace volup
HWY_AFTER_NAMESPACE();

#endif  // VOLUP_CPU_FUSED_PAIRS_INL_H_
