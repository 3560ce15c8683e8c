// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "describe.h"

namespace volup {
namespace {

// Magnitudes as bits: they order as the numbers do, and the compiler makes vectors of them.
constexpr uint32_t kInfinity = 0x7f800000;
uint32_t magnitude_bits(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffff; }

// The least and the greatest magnitude in a row that are neither 0, infinite nor NaN.
struct Magnitudes {
  uint32_t least_less_1 = UINT32_MAX;  // 0 less 1 is the greatest of all
  uint32_t greatest = 0;

  void take(uint32_t bits) {
    least_less_1 = std::min(least_less_1, bits - 1);
    greatest = std::max(greatest, bits);
  }
  void take(const Magnitudes& other) {
    least_less_1 = std::min(least_less_1, other.least_less_1);
    greatest = std::max(greatest, other.greatest);
  }
  int greatest_exponent() const {
    return greatest == 0 ? 0 : std::ilogb(std::bit_cast<float>(greatest));
  }
  int exponent_range() const {
    if (greatest == 0) return 0;
    return greatest_exponent() - std::ilogb(std::bit_cast<float>(least_less_1 + 1));
  }
};

WeightFacts facts_of(const ConvTranspose3d& g, const float* weight) {
  WeightFacts facts;
  std::vector<Magnitudes> of_channel(g.out_channels);
  const int64_t taps = g.taps();
  for (int64_t ci = 0; ci < g.in_channels; ++ci) {
    const int64_t first_out = ci / g.in_per_group() * g.out_per_group();
    for (int64_t co = 0; co < g.out_per_group(); ++co) {
      const float* const row = weight + (ci * g.out_per_group() + co) * taps;
      Magnitudes whole;
      for (int64_t tap = 0; tap < taps; ++tap) whole.take(magnitude_bits(row[tap]));
      Magnitudes& channel = of_channel[first_out + co];
      if (whole.greatest < kInfinity) {
        channel.take(whole);
        continue;
      }
      facts.finite = false;
      for (int64_t tap = 0; tap < taps; ++tap) {
        const uint32_t bits = magnitude_bits(row[tap]);
        if (bits < kInfinity) channel.take(bits);
      }
    }
  }
  Magnitudes all;
  for (const Magnitudes& channel : of_channel) {
    facts.exponent_range = std::max(facts.exponent_range, channel.exponent_range());
    all.take(channel);
  }
  facts.greatest_exponent = all.greatest_exponent();
  facts.exponent_span = all.exponent_range();
  return facts;
}

}  // namespace

Status validate(const Epilogue& given) {
  const Epilogue epilogue = normalized(given);
  const auto is_number = [](float value) { return !std::isnan(value); };
  if (!is_number(epilogue.shift) || !is_number(epilogue.subtract) ||
      !is_number(epilogue.clamp_min) || !is_number(epilogue.clamp_max) ||
      !std::isfinite(epilogue.divisor) || epilogue.divisor == 0) {
    return invalid_argument("epilogue constants: got shift ", epilogue.shift, ", divisor ",
                            epilogue.divisor, ", subtract ", epilogue.subtract, ", clamp ",
                            epilogue.clamp_min, " to ", epilogue.clamp_max,
                            ", need numbers and a finite divisor other than 0");
  }
  if (epilogue.clamp_min > epilogue.clamp_max) {
    return invalid_argument("epilogue clamp: got minimum ", epilogue.clamp_min, " above maximum ",
                            epilogue.clamp_max);
  }
  return {};
}

Result<std::shared_ptr<const Model>> Model::create(const ConvTranspose3d& geometry,
                                                   const Epilogue& given, FloatArray weight,
                                                   int64_t weight_count, FloatArray bias,
                                                   int64_t bias_count, ModelSource source) {
  VOLUP_RETURN_IF_ERROR(validate(geometry));
  if (weight == nullptr) return invalid_argument("weight: got NULL, need an array");
  if (weight_count != geometry.weight_count()) {
    return invalid_argument("weight: got ", weight_count, " elements, need ",
                            geometry.weight_count(), " for [", geometry.in_channels, ", ",
                            geometry.out_per_group(), ", ", geometry.kernel[0], ", ",
                            geometry.kernel[1], ", ", geometry.kernel[2], "]");
  }
  if (bias_count != (bias == nullptr ? 0 : geometry.out_channels)) {
    return invalid_argument("bias: got ", bias_count, " elements, need ",
                            bias == nullptr ? 0 : geometry.out_channels,
                            bias == nullptr ? " with no array" : " for the output channels");
  }
  const Epilogue epilogue = normalized(given);
  VOLUP_RETURN_IF_ERROR(validate(epilogue));
  std::shared_ptr<Model> model(new Model());
  model->geometry_ = geometry;
  model->epilogue_ = epilogue;
  model->weight_ = std::move(weight);
  model->bias_ = std::move(bias);
  model->source_ = std::move(source);
  model->facts_ = facts_of(geometry, model->weight_.get());
  model->description_ = describe(*model);
  return std::shared_ptr<const Model>(std::move(model));
}

}  // namespace volup
