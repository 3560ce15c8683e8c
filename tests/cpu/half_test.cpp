// SPDX-License-Identifier: Apache-2.0
//
// fp16 and bf16: every bit pattern there and back, and one rounding to nearest even on the way in.
#include "cpu_test.h"

namespace volup::test {
namespace {

struct Format {
  const char* name;
  uint16_t (*from)(double);
  float (*to)(uint16_t);
  uint16_t infinity;
};
constexpr Format kFormats[] = {{"fp16", fp16_from, float_from_fp16, 0x7c00},
                               {"bf16", bf16_from, float_from_bf16, 0x7f80}};

TEST(Half, EveryPatternThereAndBack) {
  for (const Format& format : kFormats) {
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const auto pattern = static_cast<uint16_t>(bits);
      const float value = format.to(pattern);
      if ((pattern & 0x7fff) > format.infinity) {
        ASSERT_TRUE(std::isnan(value)) << format.name << " " << bits;
        ASSERT_GT(format.from(value) & 0x7fff, format.infinity) << format.name << " " << bits;
      } else {
        ASSERT_EQ(format.from(value), pattern) << format.name << " " << bits;
      }
    }
  }
}

// Between neighbours: the nearer one, the even one in the middle, never by way of float.
TEST(Half, RoundsOnceToNearestEven) {
  for (const Format& format : kFormats) {
    for (uint32_t bits = 0; bits < format.infinity; ++bits) {
      const auto low = static_cast<uint16_t>(bits);
      const auto high = static_cast<uint16_t>(bits + 1);
      const double a = format.to(low);
      const double b =
          high == format.infinity ? 2 * a - double{format.to(low - 1)} : double{format.to(high)};
      const double middle = a + (b - a) / 2;
      const auto even = (bits & 1) == 0 ? low : high;
      for (const double sign : {1.0, -1.0}) {
        const auto with_sign = [&](uint16_t pattern) {
          return static_cast<uint16_t>(pattern | (sign < 0 ? 0x8000 : 0));
        };
        ASSERT_EQ(format.from(sign * middle), with_sign(even)) << format.name << " " << bits;
        ASSERT_EQ(format.from(sign * std::nextafter(middle, 0.0)), with_sign(low));
        ASSERT_EQ(format.from(sign * std::nextafter(middle, 1e300)), with_sign(high));
      }
    }
    EXPECT_EQ(format.from(1e300), format.infinity);
    EXPECT_EQ(format.from(-1e300), format.infinity | 0x8000);
    EXPECT_EQ(format.from(1e-300), 0);
  }
}

}  // namespace
}  // namespace volup::test
