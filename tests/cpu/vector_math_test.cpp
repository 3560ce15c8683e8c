// SPDX-License-Identifier: Apache-2.0
//
// The stated bounds of the vector exp and log, over every 61st float of their ranges.
#include "cpu_test.h"

namespace volup::test {
namespace {

std::vector<CpuIsa> instruction_sets() {
  std::vector<CpuIsa> sets;
  for (int isa = 0; isa <= static_cast<int>(cpu(1).properties().isa); ++isa) {
    sets.push_back(static_cast<CpuIsa>(isa));
  }
  return sets;
}

// Every 61st float between two of the same sign, the ends included.
std::vector<float> floats_between(float first, float last) {
  std::vector<float> values;
  for (auto bits = std::bit_cast<uint32_t>(first); bits < std::bit_cast<uint32_t>(last);
       bits += 61) {
    values.push_back(std::bit_cast<float>(bits));
  }
  values.push_back(last);
  return values;
}

TEST(VectorMath, ExpIsWithinItsBound) {
  for (const CpuIsa isa : instruction_sets()) {
    const FusedTarget& target = fused_target(isa);
    const bool fused = isa >= CpuIsa::kAvx2;  // multiply-adds
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> in = floats_between(1e-9f, sign > 0 ? 88.7f : 87.3f);
      for (float& v : in) v *= sign;
      std::vector<float> out(in.size());
      target.exp(in.data(), out.data(), static_cast<int64_t>(in.size()));
      double worst = 0;
      for (size_t i = 0; i < in.size(); ++i) {
        const double exact = std::exp(double{in[i]});
        const double bound = (fused ? 3e-7 : 8e-7) * std::max(1.0, std::abs(double{in[i]}) / 8);
        worst = std::max(worst, std::abs(out[i] - exact) / exact / bound);
      }
      std::printf("%s exp: %.3f of its bound for v %s 0\n", target.name, worst,
                  sign > 0 ? ">" : "<");
      EXPECT_LE(worst, 1.0) << target.name;
    }
  }
}

TEST(VectorMath, ExpAtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> in = {0.0f,      -0.0f,  infinity,
                                 -infinity, 89.0f,  1e30f,
                                 -88.0f,    -1e30f, std::numeric_limits<float>::quiet_NaN()};
  for (const CpuIsa isa : instruction_sets()) {
    std::vector<float> out(in.size());
    fused_target(isa).exp(in.data(), out.data(), static_cast<int64_t>(in.size()));
    EXPECT_EQ(out[0], 1.0f);
    EXPECT_EQ(out[1], 1.0f);
    EXPECT_EQ(out[2], infinity);
    EXPECT_EQ(out[3], 0.0f);
    EXPECT_EQ(out[4], infinity);
    EXPECT_EQ(out[5], infinity);
    EXPECT_EQ(out[6], 0.0f);
    EXPECT_EQ(out[7], 0.0f);
    EXPECT_TRUE(std::isnan(out[8]));
  }
}

TEST(VectorMath, LogIsWithinItsBound) {
  for (const CpuIsa isa : instruction_sets()) {
    const FusedTarget& target = fused_target(isa);
    const std::vector<float> in =
        floats_between(std::numeric_limits<float>::min(), std::numeric_limits<float>::max());
    std::vector<float> out(in.size());
    target.log(in.data(), out.data(), static_cast<int64_t>(in.size()));
    double worst = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const double exact = std::log(double{in[i]});
      const double bound = 1.3e-7 * std::max(1.0, std::abs(exact));
      worst = std::max(worst, std::abs(out[i] - exact) / bound);
    }
    std::printf("%s log: %.3f of its bound\n", target.name, worst);
    EXPECT_LE(worst, 1.0) << target.name;
  }
}

}  // namespace
}  // namespace volup::test
