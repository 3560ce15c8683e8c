// SPDX-License-Identifier: Apache-2.0
//
// The first half of a task of cpu/fused: which part of the problem it is, its copy of the input,
// and the sums made from that copy. Knows nothing of epilogues but what sums are put to. Included
// once an instruction set.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "cpu/fused_pairs-inl.h"
#include "cpu/fused_plan.h"
#include "cpu/fused_simd.h"
#include "cpu/fused_sums-inl.h"
#include "cpu/vector_math-inl.h"
#include "cpu/vector_rows-inl.h"
#include "hwy/highway.h"

#if defined(VOLUP_CPU_FUSED_INPUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLUP_CPU_FUSED_INPUT_INL_H_
#undef VOLUP_CPU_FUSED_INPUT_INL_H_
#else
#define VOLUP_CPU_FUSED_INPUT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace volup {
namespace HWY_NAMESPACE {

class TaskInput {
 protected:
  explicit TaskInput(const FusedTask& task)
      : t_(task),
        p_(*task.plan),
        io_(p_.problem.io),
        stride_(p_.x.stride),
        runs_(reinterpret_cast<FusedRun*>(task.scratch + p_.runs_at)) {
    int64_t rest = task.task;
    const auto take = [&rest](int64_t count) {
      const int64_t index = rest % count;
      rest /= count;
      return index;
    };
    qx_ = take(p_.tiles) * p_.tile;
    qy_ = take(p_.bands) * p_.band;
    qz_ = take(p_.z.base);
    n_ = rest;
    columns_ = std::min(p_.tile, p_.x.base - qx_);
    vectors_ = static_cast<int>((columns_ + kLanes - 1) / kLanes);
  }

  void copy_input(int64_t rows) {
    const int64_t slots = static_cast<int64_t>(p_.y.slot_delta.size()) + rows - 1;
    const auto planes = static_cast<int64_t>(p_.z.slot_delta.size());
    const int64_t inputs = p_.problem.geometry.in_channels;
    const int64_t first = qx_ + p_.x.first_delta;  // may be negative
    const int64_t before = std::clamp<int64_t>(-first, 0, p_.pitch);
    const int64_t count = std::clamp<int64_t>(p_.x.in - first - before, 0, p_.pitch - before);
    const bool bounds = p_.base_2;
    const bool simple = io_ == DType::kFp32 && before == 0 && count % kLanes == 0;
    VI largest = hn::Zero(DI());  // as bits: NaN and infinity are larger than every number
    for (int64_t plane = 0; plane < planes; ++plane) {
      const int64_t iz = qz_ + p_.z.slot_delta[static_cast<size_t>(plane)];
      if (iz < 0 || iz >= p_.z.in) continue;
      for (int64_t ci = 0; ci < inputs; ++ci) {
        const int64_t image = ((n_ * inputs + ci) * p_.z.in + iz) * p_.y.in;
        for (int64_t slot = 0; slot < slots; ++slot) {
          const int64_t iy = qy_ + slot_delta(slot);
          if (iy < 0 || iy >= p_.y.in) continue;
          float* to = t_.scratch + ((slot * planes + plane) * inputs + ci) * p_.pitch;
          const int64_t from = (image + iy) * p_.x.in + first + before;
          if (simple) {
            copy_vectors(static_cast<const float*>(t_.x) + from, count, p_.pitch, to);
          } else {
            std::fill(to, to + before, 0.0f);
            load_row(io_, t_.x, from, count, to + before);
            std::fill(to + before + count, to + p_.pitch, 0.0f);
          }
          if (bounds) largest = hn::Max(largest, largest_magnitude(to));
        }
      }
    }
    if (bounds) {
      const auto magnitude = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(DI(), largest)));
      const float* bound = t_.packed + 2 * p_.packed_floats();
      // False for NaN.
      in_range_ = bound[0] + bound[1] * magnitude < 100.0f;
    }
  }

  // count floats, then zeros up to pitch; both multiples of kLanes.
  static HWY_INLINE void copy_vectors(const float* from, int64_t count, int64_t pitch, float* to) {
    const D d;
    int64_t i = 0;
    for (; i < count; i += kLanes) hn::Store(hn::LoadU(d, from + i), d, to + i);
    for (; i < pitch; i += kLanes) hn::Store(hn::Zero(d), d, to + i);
  }

  VI largest_magnitude(const float* row) const {
    VI largest = hn::Zero(DI());
    for (int64_t i = 0; i < p_.pitch; i += kLanes) {
      largest = hn::Max(largest, hn::BitCast(DI(), hn::Abs(hn::Load(D(), row + i))));
    }
    return largest;
  }

  int64_t slot_delta(int64_t slot) const {
    const auto known = static_cast<int64_t>(p_.y.slot_delta.size());
    return slot < known ? p_.y.slot_delta[static_cast<size_t>(slot)] : p_.y.first_delta + slot;
  }

  void enter_phase(int64_t rz, int64_t ry) {
    tz_ = p_.z.begin(rz);
    tz_end_ = p_.z.end(rz);
    ty_ = p_.y.begin(ry);
    ty_end_ = p_.y.end(ry);
    first_step_ = p_.first_step(rz, ry);
  }

  // Taps along H whose input rows exist for base row `row` of the band. The deltas of a phase fall
  // with k, so that those which exist are neighbours.
  std::pair<int32_t, int32_t> existing_rows(int64_t row) const {
    const auto exists = [&](int32_t ty) {
      const int64_t iy = qy_ + row + p_.y.delta[static_cast<size_t>(ty)];
      return iy >= 0 && iy < p_.y.in;
    };
    int32_t begin = ty_;
    int32_t end = ty_end_;
    while (begin < end && !exists(begin)) ++begin;
    while (begin < end && !exists(end - 1)) --end;
    return begin < end ? std::pair(begin, end) : std::pair(0, 0);
  }

  // The (tz, ty) of the phase whose input rows exist, in runs.
  void find_runs(std::pair<int32_t, int32_t> ty) {
    run_count_ = 0;
    for (int32_t tz = tz_; tz < tz_end_ && ty.first < ty.second; ++tz) {
      const int64_t iz = qz_ + p_.z.delta[static_cast<size_t>(tz)];
      if (iz < 0 || iz >= p_.z.in) continue;
      const int32_t first = (tz - tz_) * (ty_end_ - ty_) + ty.first - ty_;
      const int32_t count = ty.second - ty.first;
      if (run_count_ > 0 && runs_[run_count_ - 1].begin + runs_[run_count_ - 1].count == first) {
        runs_[run_count_ - 1].count += count;
      } else {
        runs_[run_count_++] = {first, count};
      }
    }
  }

  // Calls visit(row, count) for base rows [begin, end) of the band in pieces with the same runs.
  template <typename Visit>
  void for_rows(int64_t begin, int64_t end, const Visit& visit) {
    while (begin < end) {
      const auto taps = existing_rows(begin);
      int64_t next = begin + 1;
      while (next < end && existing_rows(next) == taps) ++next;
      find_runs(taps);
      visit(begin, next - begin);
      begin = next;
    }
  }

  // Where the sums of rows go, and what is kept for each of their columns.
  struct Place {
    float* sums = nullptr;
    int64_t channel = 0;  // floats from channel to channel
    int64_t row = 0;      // floats from row to row
    float* per_column = nullptr;
    int64_t phase = 0;  // floats from phase to phase along W of both
  };

  // The sums of a block for all phases along W over base rows from `row` on, which have the same
  // runs: the whole tile, or one vector of it. packed: bias and weights as pack_fused lays them
  // out.
  template <Then kThen>
  void sum(const FusedBlock& block, const float* packed, int64_t row, int64_t rows,
           const Place& place, int only = -1) {
    if (p_.pairs) {
      sum_pairs<kThen>(block, packed, row, rows, place, Finish(p_.problem.epilogue), only);
    } else {
      sum_phases<kThen>(block, packed, row, rows, place, only);
    }
  }

  template <Then kThen>
  void sum_phases(const FusedBlock& block, const float* packed, int64_t row, int64_t rows,
                  Place place, int only = -1) {
    for (int64_t rx = 0; rx < stride_; ++rx) {
      sum_phase<kThen>(block, packed, rx, row, rows, place, only);
      if (place.sums != nullptr) place.sums += place.phase;
      if (place.per_column != nullptr) place.per_column += place.phase;
    }
  }

  template <Then kThen>
  void sum_phase(const FusedBlock& block, const float* packed, int64_t rx, int64_t row,
                 int64_t rows, const Place& place, int only) {
    const int64_t tap_rows = int64_t{tz_end_ - tz_} * (ty_end_ - ty_);
    const int64_t inputs = p_.problem.geometry.in_per_group();
    const int64_t step = first_step_ + tap_rows * p_.x.begin(rx) * inputs;
    const int64_t steps_per_row = (p_.x.end(rx) - p_.x.begin(rx)) * inputs;
    SumsArguments a = arguments(block, packed, step, steps_per_row, 1, row, rows, place);
    for_pieces(a, only, [&](int vectors) { sums_function<kThen>(block.count, vectors)(a); });
  }

  template <Then kThen>
  void sum_pairs(const FusedBlock& block, const float* packed, int64_t row, int64_t rows,
                 const Place& place, Finish finish, int only = -1) {
    SumsArguments a = arguments(block, packed, first_step_, p_.problem.geometry.in_per_group(), 3,
                                row, rows, place);
    for_pieces(a, only, [&](int vectors) {
      pairs_function<kThen>(block.count, vectors)(a, finish);
      const int64_t outputs = 2 * int64_t{a.pieces} * vectors * kLanes;
      if (finish.add != nullptr) finish.add += outputs;
      if (finish.out != nullptr) finish.out += outputs;
    });
  }

  SumsArguments arguments(const FusedBlock& block, const float* packed, int64_t step,
                          int64_t steps_per_row, int64_t taps_per_step, int64_t row, int64_t rows,
                          const Place& place) const {
    SumsArguments a;
    a.x = t_.scratch + row * p_.row_floats() + block.input_channel * p_.pitch;
    a.offset = p_.step_offset.data() + step;
    a.weight = packed + block.weight + step * taps_per_step * block.count;
    a.bias = packed + block.channel;
    a.runs = runs_;
    a.run_count = run_count_;
    a.steps_per_row = static_cast<int32_t>(steps_per_row);
    a.rows = static_cast<int32_t>(rows);
    a.pieces = 1;
    a.x_row = p_.row_floats();
    a.sums = place.sums;
    a.channel = place.channel;
    a.row = place.row;
    a.phase = place.phase;
    a.per_column = place.per_column;
    return a;
  }

  // Calls visit(vectors) for pieces of so many vectors each, with `a` where they begin.
  template <typename Visit>
  void for_pieces(SumsArguments& a, int only, const Visit& visit) const {
    if (only >= 0) {
      a.x += only * kLanes;
      visit(1);
      return;
    }
    int left = vectors_;
    for (int vectors = p_.vectors; left > 0; vectors /= 2) {
      a.pieces = left / vectors;
      if (a.pieces == 0) continue;
      visit(vectors);
      const int64_t columns = int64_t{a.pieces} * vectors * kLanes;
      a.x += columns;
      if (a.sums != nullptr) a.sums += columns;
      if (a.per_column != nullptr) a.per_column += columns;
      left -= a.pieces * vectors;
    }
  }

  const FusedTask& t_;
  const FusedPlan& p_;
  DType io_;
  int64_t n_, qz_, qy_, qx_;  // the sample, and the first base position
  int64_t columns_;           // base columns of this tile
  int vectors_;               // that hold them
  int64_t stride_;            // along W
  bool in_range_ = false;     // logits in base 2 are below 100 in magnitude

 private:
  FusedRun* runs_;
  int32_t run_count_ = 0;
  // The phase: its taps along D and H, and its first step for rx = 0.
  int32_t tz_ = 0, tz_end_ = 0, ty_ = 0, ty_end_ = 0;
  int64_t first_step_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace volup
HWY_AFTER_NAMESPACE();

#endif  // VOLUP_CPU_FUSED_INPUT_INL_H_
