// SPDX-License-Identifier: Apache-2.0
//
// Over 2,000 random problems: the vector kernel against the reference, the reference against the
// definition. Seeds are fixed; VOLUP_FUZZ_SEED=N in the environment runs one alone.
#include <cstdlib>

#include "cpu/cpu_kernels.h"
#include "cpu_test.h"

namespace volup::test {
namespace {

constexpr uint32_t kSeeds = 4600;
constexpr int kLeast = 2000;

std::optional<Problem> random_problem(uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  ConvTranspose3d g;
  g.groups = pick(0, 3) > 0 ? 1 : pick(2, 4);
  g.in_channels = g.groups * pick(1, 6);
  g.out_channels = g.groups * pick(1, 30);
  Shape5 input = {pick(1, 3), g.in_channels, 0, 0, 0};
  const bool usual = pick(0, 2) == 0;  // k3 s2 p1
  for (size_t axis = 0; axis < 3; ++axis) {
    g.kernel[axis] = usual ? 3 : pick(1, 5);
    g.stride[axis] = usual ? 2 : pick(1, 4);
    g.dilation[axis] = usual ? 1 : pick(0, 2) > 0 ? 1 : pick(2, 4);
    g.padding_begin[axis] = usual ? 1 : pick(0, 3);
    g.padding_end[axis] = usual ? 1 : pick(0, 2) > 0 ? g.padding_begin[axis] : pick(0, 3);
    g.output_padding[axis] = pick(0, std::max(g.stride[axis], g.dilation[axis]) - 1);
    input[2 + axis] = pick(1, axis == 2 ? 40 : 6);
  }
  const auto kind = static_cast<EpilogueKind>(pick(0, kEpilogueCount - 1));
  const auto io = static_cast<DType>(pick(0, 1) * pick(0, 2));
  auto problem = make_problem(g, default_epilogue(kind), input, Precision::kFp32, io);
  if (!problem.ok() || count_of(problem->conv_output) > 60000) return std::nullopt;
  return *problem;
}

// Whether there was a problem to check.
bool check_seed(uint32_t seed) {
  const auto problem = random_problem(seed);
  if (!problem) return false;
  const bool identity = problem->epilogue.kind == EpilogueKind::kIdentity;
  const DType io = problem->io;
  Case c = identity ? integer_case(*problem, seed)
                    : random_case(*problem, DataSet::kZeroMean, seed, seed % 3 == 0 ? 30.0 : 3.0);
  c.model();
  const RunOptions options = {.threads = 1 + static_cast<int>(seed % 3),
                              .x_offset = element_size(io) * (seed % 5),
                              .out_offset = element_size(io) * (seed % 7),
                              .last_level_cache_bytes = seed % 2 * 100};
  const Target oracle{&cpu_reference_kernel(), CpuIsa::kPortable};
  const auto wanted = values_of(io, run_case(oracle, c, options));
  constexpr int64_t kVoxels = 60;
  const double chain = identity ? 0 : std::max(1.0, chain_maximum(c, kVoxels));
  for (const Target& target : targets_for(c.problem)) {
    VOLUP_TRACE(target, c);
    SCOPED_TRACE(cat("VOLUP_FUZZ_SEED=", seed));
    const bool is_oracle = target.kernel == oracle.kernel;
    const auto got = is_oracle ? wanted : values_of(io, run_case(target, c, options));
    if (!identity) {
      const auto report = check_outputs(c, got, chain, kVoxels);
      EXPECT_TRUE(report.ok()) << report.text;
    }
    // Everywhere, if less sharply: a wrong tap is an error of the size of the logits.
    for (size_t i = 0; i < got.size(); ++i) {
      if (identity) {
        if (got[i] != wanted[i]) {
          ADD_FAILURE() << "element " << i << ": got " << got[i] << ", need " << wanted[i];
          break;
        }
        continue;
      }
      const double scale = std::max(1.0, double{std::abs(wanted[i])});
      const double part = io == DType::kFp32 ? 1e-3 : io == DType::kFp16 ? 4e-3 : 2e-2;
      if (!(std::abs(double{got[i]} - wanted[i]) <= part * scale) && got[i] != wanted[i]) {
        ADD_FAILURE() << "element " << i << ": got " << got[i] << ", need " << wanted[i];
        break;
      }
    }
  }
  return true;
}

TEST(Fuzz, RandomProblems) {
  if (const char* seed = std::getenv("VOLUP_FUZZ_SEED")) {
    EXPECT_TRUE(check_seed(static_cast<uint32_t>(std::atoi(seed)))) << "no problem of that seed";
    return;
  }
  int problems = 0;
  for (uint32_t seed = 1; seed <= kSeeds && !::testing::Test::HasFailure(); ++seed) {
    problems += check_seed(seed);
  }
  std::printf("%d random problems\n", problems);
  EXPECT_TRUE(::testing::Test::HasFailure() || problems >= kLeast) << problems;
}

}  // namespace
}  // namespace volup::test
