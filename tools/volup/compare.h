// SPDX-License-Identifier: Apache-2.0
//
// Got against expected, element by element: limits, NaN and infinity, maximum and 99.9th percentile
// of the errors. Reads no files and prints nothing.
#ifndef VOLUP_TOOLS_VOLUP_COMPARE_H_
#define VOLUP_TOOLS_VOLUP_COMPARE_H_

#include <cstdint>
#include <span>
#include <vector>

namespace volup::tool {

// An element passes if |got - expected| is at most the greater of absolute + relative * |expected|
// and, where the run has bounds, bound + floor * max(1, |expected|) + unit * |expected|.
struct Limits {
  double absolute = 0;
  double relative = 0;
  std::span<const float> bounds;  // one for each element, or none
  double floor = 0;
  double unit = 0;
};

struct Comparison {
  std::int64_t compared = 0;
  std::int64_t failed = 0;
  std::int64_t non_finite = 0;  // expected to be NaN or infinite
  double max_abs = 0;
  double p999_abs = 0;
  double max_rel = 0;
  double p999_rel = 0;
  std::int64_t worst = -1;  // index of the element that is worst for its limit; -1 if none
  double worst_got = 0;
  double worst_expected = 0;

  bool passed() const { return failed == 0; }
};

// NaN must meet NaN, infinity its sign; a mismatch is an infinite error. An expected value beyond
// largest, the range of the result's type, counts as infinity. A relative error is taken where the
// expected value is finite and not zero.
class Comparer {
 public:
  // largest: the greatest finite value of the result's type. overflow: the least magnitude that
  // rounds to infinity in it; between the two, both answers are right.
  Comparer(const Limits& limits, double largest, double overflow, std::int64_t expected_count);
  void add(std::span<const float> got, std::span<const double> expected);
  Comparison finish();

 private:
  void add_one(float got, double expected);
  double limit_of(std::size_t index, double magnitude) const;

  Limits limits_;
  double largest_;
  double overflow_;
  Comparison result_;
  double worst_ratio_ = -1;
  std::vector<float> abs_;
  std::vector<float> rel_;
};

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_COMPARE_H_
