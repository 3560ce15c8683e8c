// SPDX-License-Identifier: Apache-2.0
//
// See bound.h.
#include "bound.h"

#include <algorithm>
#include <cmath>

namespace volup::tool {
namespace {

// Half a unit in the last place, relative: what rounding one operand to the type changes at most.
constexpr double kUnitFp32 = 0x1p-24;
constexpr double kUnitTf32 = 0x1p-11;
constexpr double kUnitFp16 = 0x1p-11;
constexpr double kUnitBf16 = 0x1p-8;

double unit_of(volup_dtype io) {
  if (io == VOLUP_DTYPE_FP16) return kUnitFp16;
  return io == VOLUP_DTYPE_BF16 ? kUnitBf16 : 0;
}

// A logit's error over its sum of |x||w|. Rounded operands: twice the worst case of two roundings,
// as the contract allows twice the error of rounded operands. fp32: four times a chain of `terms`
// fused multiply-adds, whose roundings wander like sqrt(terms).
double products_unit(volup_precision precision, double terms) {
  switch (precision) {
    case VOLUP_PRECISION_TF32:
      return 4 * kUnitTf32;
    case VOLUP_PRECISION_FP16:
      return 4 * kUnitFp16;
    case VOLUP_PRECISION_BF16:
      return 4 * kUnitBf16;
    default:
      return 4 * std::sqrt(std::max(1.0, terms)) * kUnitFp32;
  }
}

// Products that meet in one logit, taps at the edges included.
double terms_of(const volup_geometry& geometry) {
  double terms = static_cast<double>(geometry.in_channels) / static_cast<double>(geometry.groups);
  for (int axis = 0; axis < 3; ++axis) {
    terms *= std::ceil(static_cast<double>(geometry.kernel[axis]) /
                       static_cast<double>(geometry.stride[axis]));
  }
  return terms;
}

// The convolution and its bias alone, or the same of absolute values: sum |x||w| + |b|.
std::vector<float> logits(const volup_model* model, const SessionChoice& choice, const Tensor& x,
                          bool absolute) {
  const volup_geometry geometry = geometry_of(model);
  const float* weight = nullptr;
  const float* bias = nullptr;
  require(volup_model_weights(model, &weight, &bias), About::kModelFile);
  const std::int64_t weight_count = geometry.in_channels * geometry.out_channels / geometry.groups *
                                    geometry.kernel[0] * geometry.kernel[1] * geometry.kernel[2];
  const auto copied = [absolute](const float* from, std::int64_t count) {
    std::vector<float> to(from, from + count);
    if (absolute) {
      for (float& value : to) value = std::abs(value);
    }
    return to;
  };
  const std::vector<float> weights = copied(weight, weight_count);
  const std::vector<float> biases =
      bias == nullptr ? std::vector<float>() : copied(bias, geometry.out_channels);
  const std::vector<float> inputs =
      copied(x.values.data(), static_cast<std::int64_t>(x.values.size()));

  volup_epilogue identity{};
  identity.struct_size = sizeof identity;
  require(volup_epilogue_init(VOLUP_EPILOGUE_IDENTITY, &identity), About::kModelFile);
  const Model convolution = create_model(geometry, identity, weights, biases);
  const Shape shape = output_shape(convolution.get(), x.shape, About::kTensorFile);
  std::vector<float> result(static_cast<std::size_t>(element_count(shape).value_or(0)));
  SessionChoice on_cpu;
  on_cpu.device_type = VOLUP_DEVICE_CPU;
  on_cpu.threads = choice.threads;
  const Session session = make_session(convolution.get(), on_cpu, x.shape);
  const volup_tensor in = host_view(inputs.data(), x.shape, VOLUP_DTYPE_FP32);
  const volup_tensor out = host_view(result.data(), shape, VOLUP_DTYPE_FP32);
  require(volup_session_run(session.get(), &in, nullptr, &out), About::kTensorFile);
  return result;
}

double sigmoid(double value) { return 1 / (1 + std::exp(-value)); }

// The largest slope of sigmoid within reach of value.
double sigmoid_slope(double value, double reach) {
  const double nearest = std::max(0.0, std::abs(value) - reach);
  return std::min(0.25, std::exp(-nearest));
}

// Logits of one voxel, their bounds, and the channels' distance in memory.
struct Voxel {
  const float* logit;
  const float* bound;
  std::int64_t stride;
  std::int64_t channels;

  double value(std::int64_t c) const { return logit[c * stride]; }
  double reach(std::int64_t c) const { return bound[c * stride]; }
  // The largest of the logits moved by sign * their bounds.
  double top(double sign) const {
    double top = -HUGE_VAL;
    for (std::int64_t c = 0; c < channels; ++c) top = std::max(top, value(c) + sign * reach(c));
    return top;
  }
  double logsumexp(double sign) const {
    const double shift = top(sign);
    double sum = 0;
    for (std::int64_t c = 0; c < channels; ++c) sum += std::exp(value(c) + sign * reach(c) - shift);
    return shift + std::log(sum);
  }
};

double logsumexp_swish_bound(const Voxel& voxel, const volup_epilogue& e) {
  const double l = voxel.logsumexp(0);
  // logsumexp grows with each logit, so its ends are those of the logits.
  const double reach = std::max(voxel.logsumexp(1) - l, l - voxel.logsumexp(-1));
  const double gate = sigmoid(l + reach + e.shift);
  const double slope = gate + (std::abs(l) + reach) * sigmoid_slope(l + e.shift, reach);
  return slope * reach / std::abs(e.divisor);
}

// out has the logits' layout. p of a channel is largest where its own logit is highest and the
// others are lowest; sigmoid's slope is at most 1/4.
void softmax_sigmoid_bounds(const Voxel& voxel, float* out) {
  const double shift = voxel.top(1);
  double low = 0;
  double middle = 0;
  double high = 0;
  for (std::int64_t c = 0; c < voxel.channels; ++c) {
    low += std::exp(voxel.value(c) - voxel.reach(c) - shift);
    middle += std::exp(voxel.value(c) - shift);
    high += std::exp(voxel.value(c) + voxel.reach(c) - shift);
  }
  for (std::int64_t c = 0; c < voxel.channels; ++c) {
    const double least = std::exp(voxel.value(c) - voxel.reach(c) - shift);
    const double most = std::exp(voxel.value(c) + voxel.reach(c) - shift);
    const double p = std::exp(voxel.value(c) - shift) / middle;
    const double above = most / (std::max(0.0, low - least) + most) - p;
    const double below = p - least / (std::max(0.0, high - most) + least);
    out[c * voxel.stride] = static_cast<float>(std::max(above, below) / 4);
  }
}

double add_hardswish_bound(double t, double reach, const volup_epilogue& e) {
  const double farthest = std::abs(t) + reach;
  const double gate_low = std::clamp<double>(t - reach + e.shift, e.clamp_min, e.clamp_max);
  const double gate_high = std::clamp<double>(t + reach + e.shift, e.clamp_min, e.clamp_max);
  const double gate = std::max(std::abs(gate_low), std::abs(gate_high));
  // t * t * gate: the square's change, and the gate's, which is none where both ends are clamped.
  return ((2 * farthest * reach) * gate + farthest * farthest * (gate_high - gate_low)) /
         std::abs(e.divisor);
}

}  // namespace

ResultRounding result_rounding(volup_dtype io) { return {8 * kUnitFp32, unit_of(io)}; }

std::vector<float> contract_bound(const volup_model* model, const SessionChoice& choice,
                                  const Tensor& x, const Tensor& add, Progress* progress) {
  progress->phase("bounding the error");
  const volup_epilogue epilogue = epilogue_of(model);
  const volup_geometry geometry = geometry_of(model);
  const double unit =
      products_unit(choice.precision.value_or(VOLUP_PRECISION_FP32), terms_of(geometry)) +
      unit_of(choice.io.value_or(VOLUP_DTYPE_FP32));
  std::vector<float> logit = logits(model, choice, x, false);
  std::vector<float> bound = logits(model, choice, x, true);
  const bool with_add = epilogue.kind == VOLUP_EPILOGUE_ADD_HARDSWISH;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const double extra = with_add ? std::abs(add.values[i]) : 0;
    bound[i] = static_cast<float>(unit * (bound[i] + extra));
    if (!with_add) continue;
    const double t = static_cast<double>(logit[i]) + add.values[i];
    bound[i] = static_cast<float>(add_hardswish_bound(t, bound[i], epilogue));
  }
  if (with_add || epilogue.kind == VOLUP_EPILOGUE_IDENTITY || bound.empty()) return bound;

  const auto samples = static_cast<std::size_t>(x.shape[0]);
  const auto channels = static_cast<std::size_t>(geometry.out_channels);
  const std::size_t voxels = bound.size() / samples / channels;
  const bool per_voxel = epilogue.kind == VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP;
  std::vector<float> result(per_voxel ? samples * voxels : bound.size());
  for (std::size_t n = 0; n < samples; ++n) {
    for (std::size_t v = 0; v < voxels; ++v) {
      const std::size_t first = n * channels * voxels + v;
      const Voxel voxel{&logit[first], &bound[first], static_cast<std::int64_t>(voxels),
                        geometry.out_channels};
      if (per_voxel) {
        result[n * voxels + v] = static_cast<float>(logsumexp_swish_bound(voxel, epilogue));
      } else {
        softmax_sigmoid_bounds(voxel, &result[first]);
      }
    }
  }
  return result;
}

}  // namespace volup::tool
