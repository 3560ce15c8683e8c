// SPDX-License-Identifier: Apache-2.0
//
// Integers that every format holds exactly, through the identity epilogue: every kernel gives the
// definition's numbers, bit for bit. Finds every fault of indexing.
#include <unistd.h>

#include "cpu_test.h"

namespace volup::test {
namespace {

bool enough_memory() {
  return sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGE_SIZE) >= int64_t{8} << 30;
}

void expect_exact(const std::string& text, uint32_t seed, const RunOptions& options = {}) {
  Case c = integer_case(problem_of(text), seed);
  c.model();
  const Operands operands = operands_of(c);
  const auto targets = targets_for(c.problem);
  ASSERT_FALSE(targets.empty()) << c.name;
  std::vector<std::vector<float>> results;
  for (const Target& target : targets) {
    VOLUP_TRACE(target, c);
    results.push_back(values_of(c.problem.io, run_case(target, c, options)));
  }
  for (const auto& voxel : voxels_of(c.problem.output, 20000)) {
    const VoxelLogits logits = logits_at(c, operands, voxel);
    for (size_t co = 0; co < logits.exact.size(); ++co) {
      const size_t at = element_at(c.problem.output, voxel, static_cast<int64_t>(co));
      const float wanted = rounded_to(c.problem.io, logits.exact[co]);
      for (size_t i = 0; i < targets.size(); ++i) {
        ASSERT_EQ(results[i][at], wanted)
            << targets[i].name() << " on " << c.name << ", element " << at;
      }
    }
  }
}

TEST(Exact, ReferenceGeometries) {
  for (const char* shape :
       {"n2 ci3 co16 i4x9x32 k3 s2 p1 fp32", "n1 ci32 co64 i3x5x32 k3 s2 p1 op1 fp32",
        "n2 ci32 co64 i4x8x16 k3 s2 p1 op1 fp32"}) {
    for (const char* io : {"", " io=fp16", " io=bf16"}) expect_exact(cat("I ", shape, io), 1);
  }
}

// Widths about the number of lanes, where vectors end within rows.
TEST(Exact, EveryWidth) {
  for (int64_t width = 1; width <= 40; ++width) {
    expect_exact(cat("I n1 ci2 co5 i2x3x", width, " k3 s2 p1 op1 fp32"), 2);
    expect_exact(cat("I n1 ci2 co13 i1x2x", width, " k3 p1 fp32"), 3);
  }
}

TEST(Exact, EveryStrideAlongW) {
  for (int64_t stride = 1; stride <= 7; ++stride) {
    expect_exact(cat("I n1 ci3 co4 i2x3x19 k2x3x5 s1x2x", stride, " p0x1x2 fp32"), 4);
  }
}

TEST(Exact, ChannelsAndGroups) {
  for (const char* channels : {"ci1 co1", "ci1 co2", "ci5 co3", "ci7 co11", "ci4 co25", "ci2 co70",
                               "ci6 co6 g6", "ci4 co12 g4", "ci10 co4 g2", "ci9 co39 g3"}) {
    for (const char* width : {"7", "17", "40"}) {
      expect_exact(cat("I n2 ", channels, " i2x3x", width, " k3 s2 p1 op1 fp32"), 5);
    }
  }
}

// Phases without a tap, positions beyond every tap, padding that cuts the input, taps far apart.
TEST(Exact, UnusualGeometry) {
  for (const char* text :
       {"I n1 ci2 co3 i4x5x6 k3 s2 p1 d2 fp32", "I n1 ci2 co3 i2x3x4 k1 s3 op2 fp32",
        "I n1 ci2 co3 i2x2x9 k1 s4 fp32", "I n2 ci3 co2 i3x4x5 k2 s3 p1:0 op2 fp32",
        "I n1 ci2 co3 i6x7x8 k5 p4 fp32", "I n1 ci3 co4 i3x5x9 k4x3x5 s3x2x1 p1x0x2 d1x2x1 fp32",
        "I n1 ci2 co2 i3x40x50 k3 p20 d20 fp32", "I n1 ci2 co2 i9x9x9 k3 s2 p3 d3 op1 fp32",
        "I n1 ci2 co3 i1x1x1 k1 fp32", "I n1 ci2 co3 i1x1x1 k7 p3 fp32",
        "I n4 ci64 co32 i4x8x8 k1x3x3 s1x2x2 p0x1x1 fp32", "I n1 ci1 co1 i3x5x7 k11x13x17 fp32",
        "I n1 ci2 co2 i5x3x2 k2 s9x8x11 fp32", "I n1 ci8 co1 i3x17x23 k4 s2 p1 fp32"}) {
    expect_exact(text, 6);
  }
}

// Rows and samples of prime sizes, batches among them.
TEST(Exact, PrimeSizes) {
  for (const char* text :
       {"I n7 ci3 co5 i5x7x11 k3 s2 p1 op1 fp32", "I n1 ci11 co13 i2x17x19 k3 s2 p1 fp32",
        "I n3 ci2 co7 i1x1x131 k3 s2 p1 fp32", "I n2 ci2 co7 i1x131x3 k3 s2 p1 fp32"}) {
    expect_exact(text, 7);
    expect_exact(text, 7, {.threads = 5});
  }
}

// Stores that bypass the caches are chosen where the tensors do not fit: here, always.
TEST(Exact, StreamingStores) {
  for (const char* text :
       {"I n1 ci3 co6 i2x5x32 k3 s2 p1 op1 fp32", "I n1 ci3 co6 i2x5x31 k3 s2 p1 fp32",
        "I n2 ci3 co6 i2x5x64 k3 p1 fp32"}) {
    expect_exact(text, 8, {.last_level_cache_bytes = 1});
    expect_exact(text, 8, {.out_offset = 4, .last_level_cache_bytes = 1});
  }
}

// 2^31 outputs, which 32-bit offsets cannot tell apart. Looked at where they are sampled.
TEST(Exact, TwoToThe31Outputs) {
  const Problem problem = problem_of("I n2 ci1 co2 i256x512x512 k2 s2 fp32 io=bf16");
  const auto outputs = count_of(problem.output);
  ASSERT_EQ(outputs, int64_t{1} << 31);
  const auto inputs = count_of(problem.input);
  auto input = cpu(2).allocate(static_cast<size_t>(inputs) * 2);
  auto output = cpu(2).allocate(static_cast<size_t>(outputs) * 2);
  const auto free_both = [&] {
    if (input.ok()) cpu(2).free(*input);
    if (output.ok()) cpu(2).free(*output);
  };
  if (!input.ok() || !output.ok() || !enough_memory()) {
    free_both();
    GTEST_SKIP() << "needs 8 GiB of free memory";
  }
  Case c = integer_case(problem_of("I n1 ci1 co2 i1x1x1 k2 s2 fp32"), 9);
  auto* x = static_cast<uint16_t*>(*input);
  const auto value_of = [](int64_t i) { return static_cast<float>((i * 2654435761) >> 7 & 7); };
  for (int64_t i = 0; i < inputs; ++i) x[i] = bf16_from(value_of(i));
  c.problem = problem;
  const Target target = targets_for(problem).front();
  const Target fastest{target.kernel, cpu(2).properties().isa};
  const Prepared prepared(fastest, c);
  ASSERT_TRUE(prepared.ok());
  ASSERT_TRUE(prepared.run(x, nullptr, *output).ok());
  const auto* out = static_cast<const uint16_t*>(*output);
  for (int64_t at = 0; at < outputs; at += 99991) {
    const int64_t w = at % 1024;
    const int64_t h = at / 1024 % 1024;
    const int64_t d = at / 1024 / 1024 % 512;
    const int64_t co = at / 1024 / 1024 / 512 % 2;
    const int64_t n = at / 1024 / 1024 / 512 / 2;
    const int64_t i = ((n * 256 + d / 2) * 512 + h / 2) * 512 + w / 2;
    const auto tap = static_cast<size_t>(co * 8 + d % 2 * 4 + h % 2 * 2 + w % 2);
    const float wanted = value_of(i) * c.weight[tap] + c.bias[static_cast<size_t>(co)];
    ASSERT_EQ(float_from_bf16(out[at]), wanted) << "element " << at;
  }
  free_both();
}

}  // namespace
}  // namespace volup::test
