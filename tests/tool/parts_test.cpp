// SPDX-License-Identifier: Apache-2.0
//
// The tool's own parts that have exact answers: fp16 and bf16 rounding against a search for the
// nearest value, names of datasets, words and numbers.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "dataset_name.h"
#include "half.h"
#include "words.h"

namespace volup::tool {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Every finite value, and each midpoint with its neighbours, against "nearest, ties to even bits".
template <typename Decode, typename Encode>
void expect_nearest_even(std::uint16_t infinity, Decode decode, Encode encode) {
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = decode(half);
    ASSERT_EQ(encode(value), half) << bits;
    ASSERT_EQ(encode(-value), half | 0x8000u) << bits;
    // The step to the next value; past the largest one the same step leads to infinity.
    const double next = bits + 1 < infinity
                            ? decode(static_cast<std::uint16_t>(bits + 1))
                            : 2.0 * value - decode(static_cast<std::uint16_t>(bits - 1));
    const float middle = static_cast<float>((value + next) / 2);
    ASSERT_EQ(static_cast<double>(middle), (value + next) / 2) << bits;
    ASSERT_EQ(encode(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(encode(std::nextafter(middle, 0.0f)), bits) << bits;
    ASSERT_EQ(encode(std::nextafter(middle, kInf)), bits + 1) << bits;
  }
}

TEST(Half, Fp16RoundsToNearestEven) {
  expect_nearest_even(0x7c00, float_from_fp16, fp16_from_float);
}

TEST(Half, Bf16RoundsToNearestEven) {
  expect_nearest_even(0x7f80, float_from_bf16, bf16_from_float);
}

TEST(Half, KnownValues) {
  EXPECT_EQ(fp16_from_float(1.0f), 0x3c00);
  EXPECT_EQ(fp16_from_float(65504.0f), 0x7bff);
  EXPECT_EQ(fp16_from_float(0x1p-24f), 0x0001);
  EXPECT_EQ(bf16_from_float(1.0f), 0x3f80);
  EXPECT_EQ(fp16_from_float(1e30f), 0x7c00);
  EXPECT_EQ(fp16_from_float(-kInf), 0xfc00);
  EXPECT_EQ(bf16_from_float(-kInf), 0xff80);
}

TEST(Half, NanStaysNan) {
  for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(float_from_fp16(fp16_from_float(nan)))) << bits;
    EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(nan)))) << bits;
  }
}

TEST(DatasetName, SplitsAtTheLastColon) {
  const auto expect = [](const char* text, const char* file, const char* dataset) {
    const DatasetName name = split_dataset_name(text, "x");
    EXPECT_EQ(name.file, file) << text;
    EXPECT_EQ(name.dataset, dataset) << text;
  };
  expect("/none/a.h5", "/none/a.h5", "x");
  expect("/none/a.h5:in", "/none/a.h5", "in");
  expect("/none/a.h5:group/in", "/none/a.h5", "group/in");
  expect("/none/a.h5:", "/none/a.h5", "x");
  expect("/none/a:b.h5", "/none/a:b.h5", "x");
  expect("/none/a:b.h5:in", "/none/a:b.h5", "in");
  expect("/none/a:b:", "/none/a:b", "x");
}

TEST(Words, NumbersDoNotDependOnTheLocale) {
  EXPECT_EQ(number(0.5), "0.5");
  EXPECT_EQ(number(1e-5), "1e-05");
  EXPECT_EQ(number(-kInf), "-inf");
  EXPECT_EQ(number(-std::numeric_limits<float>::quiet_NaN()), "nan");
  EXPECT_EQ(grouped(55360), "55,360");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(999), "999");
}

TEST(Words, ShapesAreFiveWholeNumbers) {
  EXPECT_EQ(parse_shape("0,1,2,3,4"), (Shape{0, 1, 2, 3, 4}));
  for (const char* text : {"", "1,2,3,4", "1,2,3,4,5,", ",1,2,3,4", "1,2,3,4, 5", "1,2,3,4,5.0",
                           "1,2,3,4,9223372036854775808"}) {
    EXPECT_FALSE(parse_shape(text).has_value()) << text;
  }
  EXPECT_FALSE(element_count({1 << 30, 1 << 30, 8, 1, 1}).has_value());
  EXPECT_EQ(element_count({1 << 30, 1 << 30, 0, 1, 1}), 0);
}

TEST(Words, NearestIsASlipAndNotAnotherWord) {
  const std::vector<std::string> words = {"inspect", "convert", "run"};
  EXPECT_EQ(nearest("inspcet", words), "inspect");
  EXPECT_EQ(nearest("rnu", words), "run");
  EXPECT_EQ(nearest("zebra", words), "");
}

TEST(Words, OneSentence) {
  EXPECT_EQ(one_sentence("a\n b  c\n"), "a b c.");
  EXPECT_EQ(one_sentence("done."), "done.");
  EXPECT_EQ(one_sentence("did you mean 'x'?"), "did you mean 'x'?");
}

}  // namespace
}  // namespace volup::tool
