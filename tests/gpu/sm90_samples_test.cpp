// SPDX-License-Identifier: Apache-2.0
//
// Which of a batch's samples the two fp32 engines of "cuda/sm90" take: the rule of sm90_layout.h at
// its edges, as the kernels note it in their workspace.
#include <cmath>
#include <cstring>
#include <functional>

#include "cuda/sm90_layout.h"
#include "gpu_test.h"

namespace volup::test {
namespace {

class Sm90Samples : public GpuTest {
 protected:
  // Whether the scaled engine left a sample, after edit changed one of three.
  static bool leaves_one(const Kernel& kernel, Case c, const std::function<void(float*)>& edit) {
    const size_t sample = c.x.size() / 3;
    edit(&c.x[sample]);
    const Prepared prepared(kernel, c);
    if (!prepared.ok()) return false;
    const Memory x(bytes_of(c.problem.io, c.x));
    const Memory out(static_cast<size_t>(count_of(c.problem.output)) * sizeof(float));
    EXPECT_TRUE(prepared.run(x.data(), nullptr, out.data()).ok());
    EXPECT_TRUE(device().synchronize().ok());
    const std::vector<std::byte> workspace = prepared.workspace().read();
    uint32_t left_some = 0;
    EXPECT_GE(workspace.size(), sizeof(left_some));
    std::memcpy(&left_some, workspace.data(), sizeof(left_some));
    return left_some != 0;
  }
};

TEST_F(Sm90Samples, AreTakenByTheirRange) {
  // Four pieces a sample.
  Case c = random_case(problem_of("I n3 ci32 co16 i4x16x16 k3 s2 p1 op1 fp32"), DataSet::kPositive,
                       61, 1.0);
  constexpr size_t kSample = 32 * 4 * 16 * 16;
  // From 1 to 2, so that exponents are what edits make them.
  for (float& v : c.x) v = 1.0f + std::abs(std::remainder(v, 1.0f));
  c.model();
  const auto fill = [](float value, size_t begin, size_t end) {
    return [=](float* x) { std::fill(x + begin, x + end, value); };
  };
  const auto one = [](float value) { return [=](float* x) { x[kSample / 3] = value; }; };
  struct Expectation {
    const char* what;
    std::function<void(float*)> edit;
    bool leaves;
  };
  const Expectation expectations[] = {
      {"as it is", one(1.5f), false},
      {"one number at the end of the span", one(std::ldexp(1.0f, -sm90::kExponentSpan)), false},
      {"one below", one(std::ldexp(1.99f, -sm90::kExponentSpan - 1)), true},
      {"one above, the others at the end", one(std::ldexp(1.99f, sm90::kExponentSpan)), false},
      {"one above that", one(std::ldexp(1.0f, sm90::kExponentSpan + 1)), true},
      {"a subnormal", one(0x1p-140f), true},
      {"a zero", one(0.0f), false},
      {"a NaN", one(NAN), false},
      {"an infinity", one(-INFINITY), false},
      {"a whole piece of zeros", fill(0.0f, 0, kSample / 4), false},
      {"three sixteenths left", fill(0.0f, kSample * 3 / 16, kSample), false},
      {"fewer", fill(0.0f, kSample * 5 / 32, kSample), true},
      {"nothing left", fill(0.0f, 0, kSample), true},
      {"the greatest numbers that are scaled",
       fill(std::ldexp(1.0f, sm90::kMaxExponent), 0, kSample), false},
      {"greater", fill(std::ldexp(1.0f, sm90::kMaxExponent + 1), 0, kSample), true},
      {"the least", fill(std::ldexp(1.0f, -sm90::kMaxExponent), 0, kSample), false},
      {"less", fill(std::ldexp(1.0f, -sm90::kMaxExponent - 1), 0, kSample), true},
  };
  int kernels = 0;
  for (const Kernel* kernel : kernels_for(c.problem)) {
    if (kernel->name() != "cuda/sm90" && kernel->name() != "cuda/sm90-wide") continue;
    VOLUP_TRACE(*kernel, c);
    ++kernels;
    for (const Expectation& e : expectations) {
      EXPECT_EQ(leaves_one(*kernel, c, e.edit), e.leaves) << e.what;
    }
  }
  if (properties().compute_capability == 90) {
    EXPECT_EQ(kernels, 2);
  }
}

}  // namespace
}  // namespace volup::test
