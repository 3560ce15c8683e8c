// SPDX-License-Identifier: Apache-2.0
//
// Geometry against the definition: output position o takes input i through tap k iff
// o = i * stride - padding_begin + k * dilation.
#include "geometry.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

namespace volup {
namespace {

ConvTranspose3d cube(int64_t k, int64_t s, int64_t p, int64_t op, int64_t d) {
  ConvTranspose3d g;
  g.in_channels = g.out_channels = 1;
  g.kernel = {k, k, k};
  g.stride = {s, s, s};
  g.padding_begin = g.padding_end = {p, p, p};
  g.output_padding = {op, op, op};
  g.dilation = {d, d, d};
  return g;
}

TEST(Geometry, PhasesAreTheScatterDefinition) {
  constexpr uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    ConvTranspose3d g = cube(draw(1, 6), draw(1, 4), 0, 0, draw(1, 4));
    g.padding_begin[0] = draw(0, 5);
    g.padding_end[0] = draw(0, 5);
    g.output_padding[0] = draw(0, std::max(g.stride[0], g.dilation[0]) - 1);
    ASSERT_TRUE(validate(g).ok());
    const int64_t in = draw(1, 9);
    const auto out = output_size(g, 0, in);
    if (!out.ok()) continue;
    ++accepted;
    std::multiset<std::tuple<int64_t, int64_t, int64_t>> scatter, gather;
    for (int64_t x = 0; x < in; ++x) {
      for (int64_t k = 0; k < g.kernel[0]; ++k) {
        const int64_t o = x * g.stride[0] - g.padding_begin[0] + k * g.dilation[0];
        if (o >= 0 && o < *out) scatter.emplace(o, x, k);
      }
    }
    const auto all = phases(g, 0);
    ASSERT_EQ(static_cast<int64_t>(all.size()), g.stride[0]);
    int64_t positions = 0;
    for (const Phase& phase : all) {
      const int64_t count = phase_count(*out, g.stride[0], phase.r);
      positions += count;
      for (int64_t q = 0; q < count; ++q) {
        for (const Tap& tap : phase.taps) {
          const int64_t x = q + tap.delta;
          if (x >= 0 && x < in) gather.emplace(q * g.stride[0] + phase.r, x, tap.k);
        }
      }
    }
    ASSERT_EQ(positions, *out) << "seed " << kSeed << " case " << i;
    ASSERT_EQ(scatter, gather) << "seed " << kSeed << " case " << i;
  }
  EXPECT_GT(accepted, 10000);
}

TEST(Geometry, MultiplyAddsCountsTapsThatExist) {
  ConvTranspose3d g = cube(3, 2, 1, 1, 1);
  g.in_channels = 32;
  g.out_channels = 64;
  // The published count of model B and C: edges cut, 13.9 G and 27.2 G.
  EXPECT_NEAR(static_cast<double>(multiply_adds(g, {16, 32, 16, 32, 32})), 13.9e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(multiply_adds(g, {128, 32, 16, 16, 16})), 27.2e9, 0.05e9);
  EXPECT_EQ(multiply_adds(g, {0, 32, 16, 16, 16}), 0);
}

TEST(Geometry, KnownOutputSizes) {
  EXPECT_EQ(*output_size(cube(3, 2, 1, 1, 1), 0, 16), 32);
  EXPECT_EQ(*output_size(cube(3, 2, 1, 0, 1), 0, 16), 31);
  EXPECT_EQ(*output_size(cube(1, 3, 0, 2, 1), 0, 2), 6);
  ConvTranspose3d keras_same = cube(3, 2, 0, 1, 1);
  keras_same.padding_end = {1, 1, 1};
  keras_same.output_padding = {0, 0, 0};
  EXPECT_EQ(*output_size(keras_same, 2, 16), 32);
}

TEST(Geometry, EmptyPhasesHoldTheBiasAlone) {
  const auto all = phases(cube(3, 2, 1, 0, 2), 0);
  EXPECT_TRUE(all[0].taps.empty());
  EXPECT_EQ(all[1].taps.size(), 3u);
}

struct Refused {
  const char* name;
  ConvTranspose3d geometry;
  const char* words;
};

TEST(Geometry, RefusalsSayTheValues) {
  ConvTranspose3d groups = cube(3, 2, 1, 1, 1);
  groups.groups = 0;
  ConvTranspose3d channels = cube(3, 2, 1, 1, 1);
  channels.out_channels = 7;
  channels.in_channels = 6;
  channels.groups = 3;
  ConvTranspose3d huge = cube(3, 2, 1, 1, 1);
  huge.kernel[1] = int64_t{1} << 55;
  const Refused table[] = {
      {"groups 0", groups, "groups: got 0"},
      {"groups that do not divide", channels, "a divisor of in_channels 6 and of out_channels 7"},
      {"negative padding", cube(3, 2, -1, 0, 1), "padding_begin on D: got -1"},
      {"output_padding s1 d1", cube(3, 1, 1, 1, 1), "max(stride 1, dilation 1)"},
      {"negative output_padding", cube(3, 1, 1, -1, 1), "output_padding on W: got -1"},
      {"stride 0", cube(3, 0, 1, 0, 1), "stride on D: got 0"},
      {"dilation", cube(3, 1, 1, 0, 1879048192), "dilation on H: got 1879048192"},
      {"kernel 2^55", huge, "kernel on H: got 36028797018963968"},
  };
  for (const Refused& row : table) {
    const Status status = validate(row.geometry);
    EXPECT_EQ(status.code(), VOLUP_STATUS_INVALID_ARGUMENT) << row.name;
    EXPECT_NE(status.text().find(row.words), std::string::npos)
        << row.name << ": " << status.text();
  }
  EXPECT_TRUE(validate(cube(3, 1, 1, 2, 3)).ok());
}

TEST(Geometry, OutputSizeBelowOneShowsTheFormula) {
  const auto out = output_size(cube(2, 2, 2, 0, 1), 0, 2);
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.status().text(),
            "output size on D: (in 2 - 1) * stride 2 - padding_begin 2 - padding_end 2 + "
            "dilation 1 * (kernel 2 - 1) + output_padding 0 + 1 = 0, need >= 1");
  EXPECT_FALSE(output_size(cube(2, 2, 0, 0, 1), 0, int64_t{1} << 62).ok());
  EXPECT_FALSE(output_shape(cube(1, 1, 0, 0, 1), {1 << 30, 1, 1 << 20, 1 << 20, 1}).ok());
}

TEST(Geometry, EveryFaultIsNamedAtOnce) {
  ConvTranspose3d g = cube(0, 0, -1, 0, 0);
  const std::string text = validate(g).text();
  for (const char* part : {"kernel on D", "stride on W", "padding_end on H", "dilation on D"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace volup
