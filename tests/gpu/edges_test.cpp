// SPDX-License-Identifier: Apache-2.0
//
// NaN and infinity go where PyTorch puts them and nowhere else; overflow where it is due. Logits
// are placed exactly: a 1x1x1 kernel with one group a channel and weights of 1 hands x through.
#include "gpu_test.h"

namespace volup::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Edges : public GpuTest {
 protected:
  // Outputs of every kernel for rows of logits, one row a voxel.
  static void for_each_output(char letter, const std::vector<std::vector<float>>& rows,
                              const std::vector<float>& add,
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
    if (!add.empty()) c.add = add;
    c.model();
    const auto kernels = kernels_for(c.problem);
    ASSERT_FALSE(kernels.empty());
    for (const Kernel* kernel : kernels) {
      VOLUP_TRACE(*kernel, c);
      if (const auto out = run_case(*kernel, c)) check(values_of(DType::kFp32, *out));
    }
  }
};

void expect_same(float got, double wanted, const char* what) {
  if (std::isnan(wanted)) {
    EXPECT_TRUE(std::isnan(got)) << what << ": got " << got << ", need NaN";
  } else if (std::isinf(wanted) || std::abs(wanted) > 3.4e38) {
    EXPECT_EQ(got, std::copysign(kInfinity, wanted)) << what;
  } else {
    EXPECT_NEAR(got, wanted, 1e-6 * std::max(1.0, std::abs(wanted))) << what;
  }
}

TEST_F(Edges, LogsumexpRows) {
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
      {-5, -4, -3.5, -4.5, -5},
      {1, 2, 3, 4, 5},
  };
  for_each_output('A', rows, {}, [&](const std::vector<float>& out) {
    const Epilogue e = default_epilogue(EpilogueKind::kLogsumexpSwishClamp);
    for (size_t row = 0; row < rows.size(); ++row) {
      const double l = logsumexp<double>(
          5, [&](int64_t c) { return double{rows[row][static_cast<size_t>(c)]}; });
      expect_same(out[row], swish_clamp(l, e), cat("row ", row).c_str());
    }
    EXPECT_TRUE(std::isnan(out[0])) << "all -inf";
    EXPECT_EQ(out[1], 1.0f) << "one +inf is clamped";
    EXPECT_TRUE(std::isnan(out[3])) << "one NaN";
  });
}

TEST_F(Edges, SoftmaxRows) {
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
  };
  for_each_output('B', rows, {}, [&](const std::vector<float>& out) {
    for (size_t row = 0; row < rows.size(); ++row) {
      softmax_sigmoid<double>(
          3, [&](int64_t c) { return double{rows[row][static_cast<size_t>(c)]}; },
          [&](int64_t c, double wanted) {
            expect_same(out[static_cast<size_t>(c) * rows.size() + row], wanted,
                        cat("row ", row, " channel ", c).c_str());
          });
    }
  });
}

TEST_F(Edges, HardswishValues) {
  const std::vector<float> t = {-3.0f, 0.0f,   3.0f, -kInfinity, kInfinity, -0.0f,
                                1e20f, -1e20f, kNan, -2.999f,    2.999f,    -1.5f};
  std::vector<std::vector<float>> rows;
  for (const float value : t) rows.push_back({value});
  for_each_output('C', rows, std::vector<float>(t.size(), 0.0f),
                  [&](const std::vector<float>& out) {
                    const Epilogue e = default_epilogue(EpilogueKind::kAddHardswish);
                    for (size_t row = 0; row < t.size(); ++row) {
                      // In float: the product overflows where PyTorch's does.
                      expect_same(out[row], double{hardswish_product(t[row] + 0.0f, e)},
                                  cat("t = ", t[row]).c_str());
                    }
                    EXPECT_EQ(out[0], 0.0f);
                    EXPECT_TRUE(std::isnan(out[3]));
                    EXPECT_EQ(out[7], 0.0f);
                  });
}

// One bad input value changes the outputs it reaches and no other, bit for bit.
TEST_F(Edges, NeighboursOfABadVoxelAreUntouched) {
  for (const char* text :
       {"A n2 ci3 co16 i4x5x9 k3 s2 p1 fp32", "B n2 ci32 co64 i3x4x8 k3 s2 p1 op1 fp32",
        "C n2 ci32 co64 i3x4x8 k3 s2 p1 op1 fp32", "C n2 ci32 co64 i3x4x8 k3 s2 p1 op1 tf32",
        "B n2 ci32 co64 i3x4x8 k3 s2 p1 op1 fp16 io=fp16",
        "B n2 ci32 co64 i3x4x24 k3 s2 p1 op1 tf32", "C n2 ci32 co64 i3x4x24 k3 s2 p1 op1 tf32",
        "C n2 ci32 co64 i3x4x24 k3 s2 p1 op1 fp16 io=fp16",
        "B n2 ci32 co64 i3x4x24 k3 s2 p1 op1 fp16 io=fp16",
        "I n2 ci32 co40 i3x5x24 k3 s2 p1 op1 bf16 io=bf16"}) {
    for (const float bad : {kNan, kInfinity}) {
      Case c = random_case(problem_of(text), DataSet::kZeroMean, 31, 1.0);
      Case spoilt = c;
      const Shape5& in = c.problem.input;
      const ConvTranspose3d& g = c.problem.geometry;
      const std::array<int64_t, 4> at = {1, 1, 2, 3};
      spoilt.x[element_at(in, at, 1)] = bad;
      c.model();
      for (const Kernel* kernel : kernels_for(c.problem)) {
        VOLUP_TRACE(*kernel, c);
        const auto clean = run_case(*kernel, c);
        const auto dirty = run_case(*kernel, spoilt);
        if (!clean || !dirty) continue;
        const auto before = values_of(c.problem.io, *clean);
        const auto after = values_of(c.problem.io, *dirty);
        const Shape5& out = c.problem.output;
        int64_t reached_outputs = 0;
        for (const auto& voxel : voxels_of(out, int64_t{1} << 40)) {
          bool reached = voxel[0] == at[0];
          for (size_t axis = 0; axis < 3; ++axis) {
            const int64_t k =
                voxel[1 + axis] + g.padding_begin[axis] - at[1 + axis] * g.stride[axis];
            reached = reached && k >= 0 && k < g.kernel[axis];
          }
          for (int64_t channel = 0; channel < out[1]; ++channel) {
            const size_t element = element_at(out, voxel, channel);
            if (!reached) {
              ASSERT_EQ(before[element], after[element]) << "untouched element " << element;
            } else if (std::isnan(bad)) {
              ASSERT_TRUE(std::isnan(after[element])) << "element " << element;
              ++reached_outputs;
            }
          }
        }
        EXPECT_TRUE(std::isinf(bad) || reached_outputs > 0);
      }
    }
  }
}

}  // namespace
}  // namespace volup::test
