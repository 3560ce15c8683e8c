// SPDX-License-Identifier: Apache-2.0
//
// Random problems, every kernel against the definition. Seeds are fixed; VOLUP_FUZZ_SEED=N in the
// environment runs one alone.
#include <cstdlib>

#include "gpu_test.h"

namespace volup::test {
namespace {

class Fuzz : public GpuTest {};

constexpr uint32_t kFirstSeed = 1000;
constexpr uint32_t kSeeds = 60;
// From here on problems are what tiles of whole lines of memory ask for, with extents down to 1.
constexpr uint32_t kFirstWholeLines = 2000;
constexpr uint32_t kSeedsOfWholeLines = 40;

std::optional<Problem> random_problem(uint32_t seed) {
  std::mt19937 random(seed);
  const bool whole_lines = seed >= kFirstWholeLines;
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  ConvTranspose3d g;
  g.groups = pick(0, 3) > 0 ? 1 : pick(2, 4);
  // Half of the problems have the channel counts that fast kernels ask for.
  const bool round = pick(0, 1) == 0 || whole_lines;
  g.in_channels = g.groups * (round ? 16 * pick(1, 3) : pick(1, 20));
  g.out_channels = g.groups * (round ? 16 * pick(1, 4) : pick(1, 70));
  Shape5 input = {pick(1, 5), g.in_channels, 0, 0, 0};
  const bool usual = pick(0, 2) == 0 || whole_lines;  // k3 s2 p1
  for (size_t axis = 0; axis < 3; ++axis) {
    g.kernel[axis] = usual ? 3 : pick(1, 5);
    g.stride[axis] = usual ? 2 : pick(1, 4);
    g.dilation[axis] = usual ? 1 : pick(0, 2) > 0 ? 1 : pick(2, 4);
    g.padding_begin[axis] = usual ? 1 : pick(0, 3);
    g.padding_end[axis] = usual ? 1 : pick(0, 2) > 0 ? g.padding_begin[axis] : pick(0, 3);
    g.output_padding[axis] = pick(0, std::max(g.stride[axis], g.dilation[axis]) - 1);
    input[2 + axis] = pick(1, axis == 2 ? 40 : 9);
  }
  if (whole_lines) {
    g.groups = 1;
    g.output_padding[2] = 1;
    const auto extent = [&](int64_t most) { return pick(0, 2) == 0 ? 1 : pick(2, most); };
    const int64_t depth = extent(3), height = extent(12);
    input = {input[0], g.in_channels, depth, height, 8 * pick(2, 5)};
  }
  const auto kind = static_cast<EpilogueKind>(pick(0, kEpilogueCount - 1));
  const auto io = static_cast<DType>(pick(0, 2));
  constexpr Precision kForFloat[] = {Precision::kFp32, Precision::kFp32, Precision::kTf32,
                                     Precision::kBf16};
  Precision precision = kForFloat[pick(0, 3)];
  if (io == DType::kFp16 && pick(0, 1) == 0) precision = Precision::kFp16;
  auto problem = make_problem(g, default_epilogue(kind), input, precision, io);
  if (!problem.ok()) return std::nullopt;
  return *problem;
}

void check_seed(uint32_t seed) {
  const auto problem = random_problem(seed);
  if (!problem) return;
  const bool identity = problem->epilogue.kind == EpilogueKind::kIdentity;
  Case c = identity ? integer_case(*problem, seed)
                    : random_case(*problem, DataSet::kZeroMean, seed, 3.0);
  c.model();
  constexpr int64_t kVoxels = 4000;
  const double chain = identity ? 0 : chain_maximum(c, kVoxels);
  for (const Kernel* kernel : kernels_for(c.problem)) {
    VOLUP_TRACE(*kernel, c);
    SCOPED_TRACE(cat("VOLUP_FUZZ_SEED=", seed));
    const auto out = run_case(*kernel, c);
    if (!out) continue;
    const auto values = values_of(c.problem.io, *out);
    if (identity) {
      const Operands operands = operands_of(c);
      for (const auto& voxel : voxels_of(c.problem.output, kVoxels)) {
        const VoxelLogits logits = logits_at(c, operands, voxel);
        for (size_t co = 0; co < logits.exact.size(); ++co) {
          const size_t at = element_at(c.problem.output, voxel, static_cast<int64_t>(co));
          ASSERT_EQ(values[at], rounded_to(c.problem.io, logits.exact[co])) << "element " << at;
        }
      }
    } else {
      const auto report = check_outputs(c, values, chain, kVoxels);
      EXPECT_TRUE(report.ok()) << report.text;
    }
  }
}

TEST_F(Fuzz, RandomProblems) {
  if (const char* seed = std::getenv("VOLUP_FUZZ_SEED"); seed != nullptr) {
    check_seed(static_cast<uint32_t>(std::strtoul(seed, nullptr, 10)));
    return;
  }
  for (uint32_t seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) check_seed(seed);
  for (uint32_t i = 0; i < kSeedsOfWholeLines; ++i) check_seed(kFirstWholeLines + i);
}

}  // namespace
}  // namespace volup::test
