// SPDX-License-Identifier: Apache-2.0
//
// fp16 and bf16 as bit patterns on the host: to float exactly, and from float or double with one
// rounding to nearest even. Portable and scalar; vector code converts by its own means.
#ifndef VOLUP_HALF_H_
#define VOLUP_HALF_H_

#include <bit>
#include <cstdint>

#include "tensor.h"

namespace volup {

namespace detail {
// One rounding straight from double: going through float would round twice.
template <int kExponentBits, int kMantissaBits>
constexpr uint16_t round_to_16_bits(double value) {
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  constexpr uint64_t kInfinity = uint64_t{(1 << kExponentBits) - 1} << kMantissaBits;
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 63 << 15);
  const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
  constexpr uint64_t kDoubleInfinity = uint64_t{0x7ff} << 52;
  if (magnitude > kDoubleInfinity) {
    const uint64_t payload = (magnitude & (kDoubleInfinity ^ ~uint64_t{0})) >> (52 - kMantissaBits);
    constexpr uint64_t kQuiet = uint64_t{1} << (kMantissaBits - 1);
    return static_cast<uint16_t>(sign | kInfinity | kQuiet |
                                 (payload & ((uint64_t{1} << kMantissaBits) - 1)));
  }
  if (magnitude == kDoubleInfinity) return static_cast<uint16_t>(sign | kInfinity);

  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  constexpr int kSmallestNormal = 1 - kBias;
  const int below = exponent < kSmallestNormal ? kSmallestNormal - exponent : 0;
  const int dropped = 52 - kMantissaBits + below;
  if (dropped > 53) return sign;  // below half of the smallest subnormal
  const uint64_t mantissa =
      (magnitude & ((uint64_t{1} << 52) - 1)) | (uint64_t{exponent > -1023} << 52);
  const uint64_t odd = (mantissa >> dropped) & 1;
  const uint64_t kept = (mantissa + (uint64_t{1} << (dropped - 1)) - 1 + odd) >> dropped;
  // kept holds the implicit bit, so a carry out of the mantissa lands in the exponent.
  const uint64_t biased =
      below > 0 ? kept : kept + (static_cast<uint64_t>(exponent + kBias - 1) << kMantissaBits);
  return static_cast<uint16_t>(sign | (biased > kInfinity ? kInfinity : biased));
}
}  // namespace detail

constexpr uint16_t fp16_from(double value) { return detail::round_to_16_bits<5, 10>(value); }
constexpr uint16_t bf16_from(double value) { return detail::round_to_16_bits<8, 7>(value); }

constexpr float float_from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr float float_from_fp16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t mantissa = bits & 1023u;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t biased = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | biased << 23 | mantissa << 13);
}

// Element index of a tensor of dtype at data.
inline float load_element(DType dtype, const void* data, int64_t index) {
  switch (dtype) {
    case DType::kFp16:
      return float_from_fp16(static_cast<const uint16_t*>(data)[index]);
    case DType::kBf16:
      return float_from_bf16(static_cast<const uint16_t*>(data)[index]);
    case DType::kFp32:
      break;
  }
  return static_cast<const float*>(data)[index];
}

inline void store_element(DType dtype, void* data, int64_t index, double value) {
  switch (dtype) {
    case DType::kFp16:
      static_cast<uint16_t*>(data)[index] = fp16_from(value);
      return;
    case DType::kBf16:
      static_cast<uint16_t*>(data)[index] = bf16_from(value);
      return;
    case DType::kFp32:
      break;
  }
  static_cast<float*>(data)[index] = static_cast<float>(value);
}

}  // namespace volup

#endif  // VOLUP_HALF_H_
