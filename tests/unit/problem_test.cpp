// SPDX-License-Identifier: Apache-2.0
//
// The problem string.
#include "problem.h"

#include <gtest/gtest.h>

#include <clocale>
#include <random>
#include <string>

namespace volup {
namespace {

TEST(ProblemString, IsTheDocumentedSpelling) {
  const auto p = parse_problem("C n128 ci32 co64 i16x16x16 k3 s2 p1 op1 d1 g1 fp32");
  ASSERT_TRUE(p.ok()) << p.status().text();
  EXPECT_EQ(print(*p), "C n128 ci32 co64 i16x16x16 k3 s2 p1 op1 fp32");
  EXPECT_EQ(p->output, (Shape5{128, 64, 32, 32, 32}));
  const auto keras = parse_problem("B n1 ci4 co8 i4x5x6 k1x3x3 s1x2x2 p0:1x0x1 bf16 io=bf16");
  ASSERT_TRUE(keras.ok()) << keras.status().text();
  EXPECT_EQ(print(*keras), "B n1 ci4 co8 i4x5x6 k1x3x3 s1x2x2 p0:1x0x1 bf16 io=bf16");
  EXPECT_EQ(keras->geometry.padding_end, (Axes{1, 0, 1}));
}

TEST(ProblemString, ParseOfPrintIsTheSameProblem) {
  constexpr uint32_t kSeed = 11;
  std::mt19937 random(kSeed);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int made = 0;
  for (int i = 0; i < 5000; ++i) {
    ConvTranspose3d g;
    g.groups = draw(1, 3);
    g.in_channels = g.groups * draw(1, 9);
    g.out_channels = g.groups * draw(1, 9);
    for (int axis = 0; axis < 3; ++axis) {
      g.kernel[axis] = draw(1, 5);
      g.stride[axis] = draw(1, 3);
      g.dilation[axis] = draw(1, 3);
      g.padding_begin[axis] = draw(0, 2);
      g.padding_end[axis] = draw(0, 1) == 0 ? g.padding_begin[axis] : draw(0, 2);
      g.output_padding[axis] = draw(0, std::max(g.stride[axis], g.dilation[axis]) - 1);
    }
    const auto io = static_cast<DType>(draw(0, 2));
    auto precision = static_cast<Precision>(draw(0, 3));
    if (precision == Precision::kFp16 && io != DType::kFp16) precision = Precision::kTf32;
    const auto p = make_problem(g, default_epilogue(static_cast<EpilogueKind>(draw(0, 3))),
                                {draw(0, 99), g.in_channels, draw(1, 9), draw(1, 9), draw(1, 9)},
                                precision, io);
    if (!p.ok()) continue;
    ++made;
    const auto again = parse_problem(print(*p));
    ASSERT_TRUE(again.ok()) << print(*p) << ": " << again.status().text();
    EXPECT_EQ(print(*again), print(*p)) << "seed " << kSeed << " case " << i;
    EXPECT_EQ(again->geometry, p->geometry) << print(*p);
    EXPECT_EQ(again->input, p->input);
    EXPECT_EQ(again->io, p->io);
    EXPECT_EQ(again->precision, p->precision);
    EXPECT_EQ(again->epilogue, p->epilogue);
  }
  EXPECT_GT(made, 3000);
}

TEST(ProblemString, FaultsNameTheWord) {
  const std::pair<const char*, const char*> table[] = {
      {"", "epilogue's letter"},
      {"D n1 ci1 co1 i1x1x1 k1 fp32", "'D'"},
      {"A n1 ci1 co1 i1x1x1 k1x2 fp32", "'k1x2'"},
      {"A n1 ci1 co1 i1x1x1 k1x2x3x4 fp32", "'k1x2x3x4'"},
      {"A n ci1 co1 i1x1x1 k1", "'n'"},
      {"A n1 co1 i1x1x1 k1", "ci, the input channels"},
      {"A n1 ci1 co1 i1x1x1 k1 fp64", "'fp64'"},
      {"A n1 ci1 co1 i1x1x1 k1 io=int8", "'io=int8'"},
      {"A n1 ci1 co1 i1x1x1 k1 fp16", "precision fp16"},
      {"A n1 ci1 co1 i1x1x1 k99999999999999999999", "'k99999999999999999999'"},
      {"A n1 ci1 co1 i1x1x1 k1.5", "'k1.5'"},
      {"B n1 ci1 co1 i2x2x2 k2 s2 p2", "need >= 1"},
  };
  for (const auto& [text, words] : table) {
    const auto p = parse_problem(text);
    ASSERT_FALSE(p.ok()) << text;
    EXPECT_NE(p.status().text().find(words), std::string::npos)
        << text << ": " << p.status().text();
  }
}

TEST(ProblemString, AnyBytesAreAnsweredWithWords) {
  constexpr uint32_t kSeed = 13;
  std::mt19937 random(kSeed);
  const std::string alphabet = "ABCI ncidkspopg0123456789x:=fp32b\t\n-.";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    const size_t length = random() % 40;
    for (size_t c = 0; c < length; ++c) text += alphabet[random() % alphabet.size()];
    const auto p = parse_problem(text);
    if (!p.ok()) {
      EXPECT_FALSE(p.status().text().empty()) << text;
    }
  }
}

TEST(ProblemString, DoesNotDependOnTheLocale) {
  if (std::setlocale(LC_ALL, "de_DE.UTF-8") == nullptr) {
    GTEST_SKIP() << "locale de_DE.UTF-8 is not installed";
  }
  EXPECT_EQ(cat(1.5, " ", 1234567), "1.5 1234567");
  const auto p = parse_problem("C n1000 ci32 co64 i16x16x16 k3 s2 p1 op1 fp32");
  std::setlocale(LC_ALL, "C");
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(print(*p), "C n1000 ci32 co64 i16x16x16 k3 s2 p1 op1 fp32");
}

}  // namespace
}  // namespace volup
