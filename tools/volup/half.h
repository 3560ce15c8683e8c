// SPDX-License-Identifier: Apache-2.0
//
// fp16 and bf16 to and from fp32, on the host, rounding to nearest even. Plain integer arithmetic,
// so that the tool gives the same bits on every machine. Holds no tensors.
#ifndef VOLUP_TOOLS_VOLUP_HALF_H_
#define VOLUP_TOOLS_VOLUP_HALF_H_

#include <bit>
#include <cstdint>

namespace volup::tool {

inline std::uint16_t bf16_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  // A NaN whose payload lies in the dropped half would round to infinity: keep it quiet instead.
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float float_from_bf16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

inline std::uint16_t fp16_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  }
  // 65520 lies half-way between the largest fp16 and the next power of two: it rounds up.
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x33000000u) return static_cast<std::uint16_t>(sign);  // below 2^-25: zero
  if (magnitude < 0x38800000u) {  // below 2^-14: a subnormal, in units of 2^-24
    const std::uint32_t shift = 126u - (magnitude >> 23);
    const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t kept = mantissa >> shift;
    const std::uint32_t dropped = mantissa & ((1u << shift) - 1u);
    const std::uint32_t tie = 1u << (shift - 1u);
    const bool up = dropped > tie || (dropped == tie && (kept & 1u) != 0);
    return static_cast<std::uint16_t>(sign | (kept + (up ? 1u : 0u)));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline float float_from_fp16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_HALF_H_
