// SPDX-License-Identifier: Apache-2.0
//
// The cuDNN fallback beyond what every kernel is held to: what it refuses, and pieces under a
// workspace limit.
#include "gpu_test.h"

namespace volup::test {
namespace {

const Kernel& cudnn() {
  for (const Kernel* kernel : kernel_list()) {
    if (kernel->name() == "cuda/cudnn") return *kernel;
  }
  throw std::logic_error("no kernel is named cuda/cudnn");
}

DeviceProperties h200() {
  DeviceProperties properties;
  properties.type = DeviceType::kCuda;
  properties.compute_capability = 90;
  properties.multiprocessors = 132;
  properties.cudnn_version = 91900;
  return properties;
}

std::string refusal(const std::string& problem, const DeviceProperties& device) {
  return cudnn().refuse(problem_of(problem), device).value_or("");
}

constexpr const char* kPlain = "C n8 ci32 co64 i4x4x4 k3 s2 p1 op1 fp32";

TEST(CudnnRefusal, TakesPlainProblems) {
  EXPECT_EQ(refusal(kPlain, h200()), "");
  EXPECT_EQ(refusal("A n2 ci6 co9 i4 k3 s2 p1 g3 d1 tf32", h200()), "");
  EXPECT_EQ(refusal("B n2 ci6 co9 i4 k3 s2 p1:1 fp16 io=fp16", h200()), "");
}

TEST(CudnnRefusal, MissingOrWrongVersion) {
  DeviceProperties device = h200();
  device.cudnn_version = 0;
  device.cudnn_missing = "cuDNN cannot be opened: no such file";
  EXPECT_EQ(refusal(kPlain, device), "needs cuDNN 9: cuDNN cannot be opened: no such file");
  device.cudnn_version = 8907;
  EXPECT_EQ(refusal(kPlain, device), "needs cuDNN 9, got version 8907");
  for (const int64_t version : {90800, 91002, 91299}) {
    device.cudnn_version = version;
    EXPECT_NE(refusal(kPlain, device).find("silently wrong"), std::string::npos) << version;
  }
  for (const int64_t version : {90000, 90799, 91300}) {
    device.cudnn_version = version;
    EXPECT_EQ(refusal(kPlain, device), "") << version;
  }
}

TEST(CudnnRefusal, PaddingThatNoConvolutionHas) {
  EXPECT_NE(refusal("I n1 ci2 co2 i4 k4 s2 p0:1 fp32", h200()), "");
  EXPECT_NE(refusal("I n1 ci2 co2 i4 k4 s2 p2:0 fp32", h200()), "");
  EXPECT_EQ(refusal("I n1 ci2 co2 i4 k4 s2 p1:0 fp32", h200()), "");
  EXPECT_EQ(refusal("I n1 ci2 co2 i4 k4 s2 p0:1 op1 fp32", h200()), "");
  EXPECT_NE(refusal("I n1 ci2 co2 i4 k3 s1 d3 op2 fp32", h200()), "");
}

TEST(CudnnRefusal, WeightsThatAreNotFinite) {
  Problem problem = problem_of(kPlain);
  problem.weights.finite = false;
  EXPECT_TRUE(cudnn().refuse(problem, h200()).has_value());
}

TEST(CudnnWorkspace, ShrinksWithTheLimitDownToOneSample) {
  const Problem problem = problem_of("B n16 ci32 co64 i16x32x32 k3 s2 p1 op1 fp32");
  const Problem single = problem_of("B n1 ci32 co64 i16x32x32 k3 s2 p1 op1 fp32");
  const auto no_limit = std::numeric_limits<size_t>::max();
  const auto whole = cudnn().workspace_bytes(problem, h200(), no_limit);
  const auto smallest = cudnn().workspace_bytes(single, h200(), no_limit);
  ASSERT_TRUE(whole.ok() && smallest.ok());
  EXPECT_GT(*whole, *smallest);
  for (const size_t limit : {*smallest, *smallest * 2, *whole - 1, *whole}) {
    const auto bytes = cudnn().workspace_bytes(problem, h200(), limit);
    ASSERT_TRUE(bytes.ok()) << bytes.status().text();
    EXPECT_LE(*bytes, limit);
  }
  const auto below = cudnn().workspace_bytes(problem, h200(), *smallest - 1);
  ASSERT_FALSE(below.ok());
  EXPECT_EQ(below.status().code(), VOLUP_STATUS_OUT_OF_MEMORY);
  EXPECT_NE(below.status().text().find(cat(*smallest)), std::string::npos);
}

class Cudnn : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (gpu().ok() && properties().cudnn_version == 0) GTEST_SKIP() << properties().cudnn_missing;
  }
};

// Pieces of one sample, of two with a last piece that reaches back, and the whole batch.
TEST_F(Cudnn, PiecesComputeTheSame) {
  for (const char* shape :
       {"n7 ci32 co64 i3x4x8 k3 s2 p1 op1 fp32", "n7 ci3 co16 i4x5x9 k3 s2 p1 fp32",
        "n5 ci6 co9 i3x5x7 k3 s2 p1 g3 fp16 io=fp16"}) {
    for (const char letter : {'I', 'C'}) {
      Case c = integer_case(problem_of(cat(std::string(1, letter), " ", shape)), 61);
      c.model();
      if (cudnn().refuse(c.problem, properties())) GTEST_SKIP();
      VOLUP_TRACE(cudnn(), c);
      const auto whole = run_case(cudnn(), c);
      if (!whole) continue;
      for (const int64_t samples : {1, 2, 3}) {
        Shape5 piece = c.problem.input;
        piece[0] = samples;
        const auto part = make_problem(c.problem.geometry, c.problem.epilogue, piece,
                                       c.problem.precision, c.problem.io);
        const auto limit =
            cudnn().workspace_bytes(*part, properties(), std::numeric_limits<size_t>::max());
        ASSERT_TRUE(limit.ok());
        EXPECT_EQ(run_case(cudnn(), c, {.limit = *limit}), whole) << samples << " at a time";
      }
    }
  }
}

}  // namespace
}  // namespace volup::test
