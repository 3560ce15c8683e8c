// SPDX-License-Identifier: Apache-2.0
//
// NaN and infinity go where PyTorch puts them and nowhere else; overflow where it is due. Logits
// are placed exactly: a 1x1x1 kernel with one group a channel and weights of 1 hands x through.
#include "cpu_test.h"

namespace volup::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Outputs of every kernel for rows of logits, one row a voxel.
void for_each_output(char letter, const std::vector<std::vector<float>>& rows,
                     const std::function<void(const std::vector<float>&)>& check) {
  const size_t channels = rows[0].size();
  Case c = empty_case(problem_of(cat(std::string(1, letter), " n1 ci", channels, " co", channels,
                                     " i1x1x", rows.size(), " k1 g", channels, " fp32")),
                      "placed logits");
  std::fill(c.weight.begin(), c.weight.end(), 1.0f);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t channel = 0; channel < channels; ++channel) {
      c.x[channel * rows.size() + row] = rows[row][channel];
    }
  }
  c.model();
  const auto targets = targets_for(c.problem);
  ASSERT_FALSE(targets.empty());
  for (const Target& target : targets) {
    VOLUP_TRACE(target, c);
    check(values_of(DType::kFp32, run_case(target, c)));
  }
}

void expect_same(float got, double wanted, const std::string& what) {
  if (std::isnan(wanted)) {
    EXPECT_TRUE(std::isnan(got)) << what << ": got " << got << ", need NaN";
  } else if (std::abs(wanted) > 3.4028235e38) {
    EXPECT_EQ(got, std::copysign(kInfinity, wanted)) << what;
  } else {
    EXPECT_NEAR(got, wanted, 1e-6 * std::max(1.0, std::abs(wanted))) << what;
  }
}

// NaN with bits set that arithmetic on bit patterns could carry away.
float nan_with_payload(uint32_t payload) { return std::bit_cast<float>(0x7f800000u | payload); }

TEST(Edges, LogsumexpRows) {
  const std::vector<std::vector<float>> rows = {
      {-kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity},
      {0, kInfinity, 1, 2, 3},
      {kInfinity, kInfinity, kInfinity, kInfinity, kInfinity},
      {0, 1, kNan, 2, 3},
      {kNan, kNan, kNan, kNan, kNan},
      {kInfinity, kNan, -kInfinity, 0, 1},
      {-kInfinity, -1, -kInfinity, -2, -kInfinity},
      {100, 100, 100, 100, 100},
      {-200, -200, -200, -200, -200},
      {3e38f, 3e38f, 3e38f, 3e38f, 3e38f},
      {-3e38f, -3e38f, -3e38f, -3e38f, -3e38f},
      {0, 1e30f, -1e30f, 5, 5},
      {-5, -4, -3.5f, -4.5f, -5},
      {1, 2, 3, 4, 5},
      {-68, -70, -300, -kInfinity, -69},
      {nan_with_payload(0x7fffff), 0, 0, 0, 0},
      {0, 0, nan_with_payload(0xffffffffu), 0, 0},
      {0, nan_with_payload(0x400001), 0, 0, 0},
  };
  for_each_output('A', rows, [&](const std::vector<float>& out) {
    const Epilogue e = default_epilogue(EpilogueKind::kLogsumexpSwishClamp);
    for (size_t row = 0; row < rows.size(); ++row) {
      const double l = logsumexp<double>(
          5, [&](int64_t c) { return double{rows[row][static_cast<size_t>(c)]}; });
      expect_same(out[row], swish_clamp(l, e), cat("row ", row));
    }
    EXPECT_TRUE(std::isnan(out[0])) << "all -inf";
    EXPECT_EQ(out[1], 1.0f) << "one +inf is clamped";
    EXPECT_TRUE(std::isnan(out[3])) << "one NaN";
  });
}

TEST(Edges, SoftmaxRows) {
  const std::vector<std::vector<float>> rows = {
      {-kInfinity, -kInfinity, -kInfinity},
      {0, kInfinity, 1},
      {0, kNan, 1},
      {-kInfinity, 0, 1},
      {100, 100, 100},
      {3e38f, 3e38f, 3e38f},
      {-3e38f, 3e38f, 0},
      {-200, -200, -200},
      {kInfinity, kInfinity, kInfinity},
      {1, 2, 3},
      {-kInfinity, 7, 7},
      {-3e38f, -3e38f, -3e38f},
      {nan_with_payload(0x7fffff), 5, 1},
      {5, nan_with_payload(0xffffffffu), 1},
      {5, 1, nan_with_payload(0x400001)},
      {kNan, kInfinity, 1},
      {3e38f, kNan, -3e38f},
  };
  for_each_output('B', rows, [&](const std::vector<float>& out) {
    for (size_t row = 0; row < rows.size(); ++row) {
      softmax_sigmoid<double>(
          3, [&](int64_t c) { return double{rows[row][static_cast<size_t>(c)]}; },
          [&](int64_t c, double wanted) {
            expect_same(out[static_cast<size_t>(c) * rows.size() + row], wanted,
                        cat("row ", row, " channel ", c));
          });
    }
  });
}

TEST(Edges, HardswishValues) {
  const std::vector<float> t = {-3.0f, 0.0f,    3.0f,   -kInfinity, kInfinity, -0.0f, 1e20f, -1e20f,
                                kNan,  -2.999f, 2.999f, -1.5f,      1e19f,     4.0f,  -4.0f};
  std::vector<std::vector<float>> rows;
  for (const float value : t) rows.push_back({value});
  for_each_output('C', rows, [&](const std::vector<float>& out) {
    const Epilogue e = default_epilogue(EpilogueKind::kAddHardswish);
    for (size_t row = 0; row < t.size(); ++row) {
      // In float: the product overflows where PyTorch's does.
      expect_same(out[row], double{hardswish_product(t[row], e)}, cat("t = ", t[row]));
    }
    EXPECT_EQ(out[0], 0.0f);
    EXPECT_TRUE(std::isnan(out[3]));
    EXPECT_EQ(out[7], 0.0f);
  });
}

// 100 in every channel: logsumexp 100 + log C, softmax 1 / C.
TEST(Edges, LargeBias) {
  for (const char letter : {'A', 'B'}) {
    Case c =
        random_case(problem_of(cat(std::string(1, letter), " n1 ci2 co7 i2x3x9 k3 s2 p1 fp32")),
                    DataSet::kZeroMean, 5);
    std::fill(c.weight.begin(), c.weight.end(), 0.0f);
    std::fill(c.bias.begin(), c.bias.end(), 100.0f);
    c.problem.epilogue.clamp_max = 1000;
    c.model();
    const double l = 100 + std::log(7.0);
    const double wanted = letter == 'A' ? l / 6 : 1 / (1 + std::exp(-1.0 / 7));
    for (const Target& target : targets_for(c.problem)) {
      VOLUP_TRACE(target, c);
      for (const float value : values_of(DType::kFp32, run_case(target, c))) {
        ASSERT_NEAR(value, wanted, 1e-6 * wanted);
      }
    }
  }
}

// One bad input value changes the outputs it reaches and no other, bit for bit.
TEST(Edges, NeighboursOfABadVoxelAreUntouched) {
  for (const char* text :
       {"A n2 ci3 co16 i4x5x19 k3 s2 p1 fp32", "B n2 ci32 co64 i3x4x16 k3 s2 p1 op1 fp32",
        "C n2 ci32 co64 i3x4x16 k3 s2 p1 op1 fp32", "I n2 ci2 co3 i3x4x9 k3 p1 fp32 io=bf16"}) {
    for (const float bad : {kNan, kInfinity}) {
      Case c = random_case(problem_of(text), DataSet::kZeroMean, 31, 1.0);
      Case spoilt = c;
      const std::array<int64_t, 4> at = {1, 1, 2, 3};
      spoilt.x[element_at(c.problem.input, at, 1)] = bad;
      c.model();
      const ConvTranspose3d& g = c.problem.geometry;
      for (const Target& target : targets_for(c.problem)) {
        VOLUP_TRACE(target, c);
        const auto clean = values_of(c.problem.io, run_case(target, c));
        const auto got = values_of(c.problem.io, run_case(target, spoilt));
        int64_t reached = 0;
        for (const auto& voxel : voxels_of(c.problem.output, int64_t{1} << 40)) {
          bool reaches = voxel[0] == at[0];
          for (size_t axis = 0; axis < 3; ++axis) {
            const int64_t scaled = voxel[1 + axis] + g.padding_begin[axis] -
                                   at[1 + axis] * g.stride[axis];  // = k * dilation
            reaches = reaches && scaled >= 0 && scaled % g.dilation[axis] == 0 &&
                      scaled / g.dilation[axis] < g.kernel[axis];
          }
          reached += reaches;
          for (int64_t co = 0; co < c.problem.output[1]; ++co) {
            const size_t i = element_at(c.problem.output, voxel, co);
            if (!reaches) {
              ASSERT_EQ(got[i], clean[i]) << "element " << i;
            } else if (std::isnan(bad)) {
              ASSERT_TRUE(std::isnan(got[i])) << "element " << i;
            }
          }
        }
        EXPECT_GT(reached, 0);
      }
    }
  }
}

// What zero padding would turn into NaN is left to the reference.
TEST(Edges, WeightsThatAreNotFinite) {
  Case c = random_case(problem_of("I n1 ci2 co3 i2x3x4 k3 s2 p1 fp32"), DataSet::kZeroMean, 6);
  c.weight[5] = kInfinity;
  c.model();
  const auto targets = targets_for(c.problem);
  ASSERT_EQ(targets.size(), 1u);
  EXPECT_EQ(targets[0].kernel->name(), "cpu/reference");
  const auto refusal =
      kernel_list()[kernel_list().size() - 2]->refuse(c.problem, targets[0].properties());
  ASSERT_TRUE(refusal);
  EXPECT_NE(refusal->find("finite"), std::string::npos) << *refusal;
}

TEST(Edges, EmptyBatch) {
  for (const char letter : {'I', 'A', 'B', 'C'}) {
    Case c = random_case(problem_of(cat(std::string(1, letter), " n0 ci2 co3 i2x3x4 k3 s2 fp32")),
                         DataSet::kPositive, 7);
    c.model();
    for (const Target& target : targets_for(c.problem)) {
      VOLUP_TRACE(target, c);
      EXPECT_TRUE(run_case(target, c).empty());
    }
  }
}

}  // namespace
}  // namespace volup::test
