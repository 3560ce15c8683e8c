// SPDX-License-Identifier: Apache-2.0
//
// See compare.h.
#include "compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace volup::tool {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Nearest rank: the least value that 99.9 % of them do not exceed. Reorders errors.
double percentile_999(std::vector<float>* errors) {
  if (errors->empty()) return 0;
  const std::size_t rank = (errors->size() * 999 + 999) / 1000;
  const auto at = errors->begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(errors->begin(), at, errors->end());
  return *at;
}

}  // namespace

Comparer::Comparer(const Limits& limits, double largest, double overflow,
                   std::int64_t expected_count)
    : limits_(limits), largest_(largest), overflow_(overflow) {
  abs_.reserve(static_cast<std::size_t>(expected_count));
  rel_.reserve(static_cast<std::size_t>(expected_count));
}

void Comparer::add(std::span<const float> got, std::span<const double> expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) add_one(got[i], expected[i]);
}

double Comparer::limit_of(std::size_t index, double magnitude) const {
  const double stated = limits_.absolute + limits_.relative * magnitude;
  if (limits_.bounds.empty()) return stated;
  const double bound =
      limits_.bounds[index] + limits_.floor * std::max(1.0, magnitude) + limits_.unit * magnitude;
  return bound > stated ? bound : stated;  // a NaN bound, from a NaN logit, allows nothing
}

void Comparer::add_one(float got_value, double expected) {
  const double got = got_value;
  const std::int64_t index = result_.compared++;
  const double magnitude = std::abs(expected);
  const bool as_infinity = std::isinf(got) && magnitude > largest_;
  const bool finite = magnitude < overflow_ && !as_infinity;  // false for NaN
  double error = 0;
  if (finite) {
    error = std::isnan(got) ? kInfinity : std::abs(got - expected);
  } else {
    ++result_.non_finite;
    const bool met = std::isnan(expected)
                         ? std::isnan(got)
                         : std::isinf(got) && std::signbit(got) == std::signbit(expected);
    if (!met) error = kInfinity;
  }
  if (finite || error > 0) {
    result_.max_abs = std::max(result_.max_abs, error);
    abs_.push_back(static_cast<float>(error));
    if (error == kInfinity || magnitude > 0) {
      const double relative = error == kInfinity ? kInfinity : error / magnitude;
      result_.max_rel = std::max(result_.max_rel, relative);
      rel_.push_back(static_cast<float>(relative));
    }
  }
  const double limit = finite ? limit_of(static_cast<std::size_t>(index), magnitude) : 0;
  const bool failed = error == kInfinity || error > limit;
  if (failed) ++result_.failed;
  // Not error / limit for a mismatch: beside an infinite value the limit may be infinite as well.
  const double ratio = error == kInfinity ? kInfinity : error == 0 ? 0 : error / limit;
  if (ratio > worst_ratio_) {
    worst_ratio_ = ratio;
    result_.worst = index;
    result_.worst_got = got;
    result_.worst_expected = expected;
  }
}

Comparison Comparer::finish() {
  result_.p999_abs = percentile_999(&abs_);
  result_.p999_rel = percentile_999(&rel_);
  return result_;
}

}  // namespace volup::tool
