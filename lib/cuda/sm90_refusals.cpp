// SPDX-License-Identifier: Apache-2.0
//
// What "cuda/sm90" and "cuda/sm90-wide" refuse, in words, and the engine that serves what they
// take.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "cuda/sm90_plan.h"

namespace volup::sm90 {

namespace {

// The engine that keeps a precision's promise for an I/O type, whatever the numbers; nothing where
// there is none.
std::optional<Engine> engine_for(Precision precision, DType io) {
  if (io == DType::kFp32) {
    switch (precision) {
      case Precision::kFp32:
        return kUnscaledEngine;
      case Precision::kTf32:
        return Engine::kBf16x2;
      case Precision::kBf16:
        return Engine::kBf16x1;
      case Precision::kFp16:
        return std::nullopt;
    }
  }
  if (io == DType::kFp16 && precision == Precision::kFp16) return Engine::kFp16x1;
  if (io == DType::kBf16 && precision == Precision::kBf16) return Engine::kBf16x1;
  return std::nullopt;
}

Refusal refuse_plan(const Plan& plan, const DeviceProperties& device) {
  const size_t shares = plan.classes.size() * static_cast<size_t>(plan.channel_tiles);
  VOLUP_REFUSE_IF(shares > kMaxShares, "needs at most ", kMaxShares,
                  " phases x channel tiles, got ", shares);
  VOLUP_REFUSE_IF(plan.shared_bytes == 0, "needs more shared memory than ",
                  device.shared_memory_bytes, " bytes");
  return std::nullopt;
}

// Why kScaledEngine cannot serve an fp32 problem, were it only for some samples.
Refusal refuse_scaled(const Problem& problem, const DeviceProperties& device) {
  const ConvTranspose3d& g = problem.geometry;
  // Errors of few products do not cancel.
  VOLUP_REFUSE_IF(g.in_channels < 8, "needs 8 input channels or more for fp32 products, got ",
                  g.in_channels);
  VOLUP_REFUSE_IF(problem.weights.exponent_span > kExponentSpan, "needs weights within 2^",
                  kExponentSpan, " of the greatest for fp32 products, got 2^",
                  problem.weights.exponent_span);
  VOLUP_REFUSE_IF(std::abs(problem.weights.greatest_exponent) > kMaxExponent - 20,
                  "needs weights of 2^", 20 - kMaxExponent, " to 2^", kMaxExponent - 20,
                  " for fp32 products, got 2^", problem.weights.greatest_exponent);
  const Plan scaled = make_plan(problem, kScaledEngine, 1, device);
  const Plan unscaled = make_plan(problem, kUnscaledEngine, 1, device);
  for (const Plan* plan : {&scaled, &unscaled}) {
    if (auto refusal = refuse_plan(*plan, device)) return refusal;
    VOLUP_REFUSE_IF(!std::ranges::all_of(plan->classes, &Class::resident),
                    "needs weights that stay in shared memory for fp32 products");
  }
  const auto weights = static_cast<size_t>(g.weight_count()) * sizeof(float);
  constexpr size_t kMebibyte = size_t{1} << 20;
  VOLUP_REFUSE_IF(scaled.packed_bytes() + unscaled.packed_bytes() > 2 * weights + kMebibyte,
                  "needs fp32 products' packed weights in twice the weights and 1 MiB, got ",
                  scaled.packed_bytes() + unscaled.packed_bytes(), " bytes");
  return std::nullopt;
}

}  // namespace

Refusal refuse(const Problem& problem, const DeviceProperties& device) {
  const ConvTranspose3d& g = problem.geometry;
  VOLUP_REFUSE_IF(device.type != DeviceType::kCuda || device.compute_capability != 90,
                  "needs compute capability 9.0, got ", device.compute_capability);
  VOLUP_REFUSE_IF(problem.epilogue.kind == EpilogueKind::kLogsumexpSwishClamp ||
                      static_cast<int>(problem.epilogue.kind) >= kEpilogueCount,
                  "has no epilogue ", name_of(problem.epilogue.kind));
  VOLUP_REFUSE_IF(problem.epilogue.kind == EpilogueKind::kAddHardswish &&
                      !(problem.epilogue.clamp_min == 0 && problem.epilogue.divisor > 0 &&
                        problem.epilogue.clamp_max == problem.epilogue.divisor),
                  "needs a gate clamped to [0, divisor]");
  VOLUP_REFUSE_IF(!engine_for(problem.precision, problem.io), "has no ", name_of(problem.precision),
                  " products with ", name_of(problem.io), " I/O");
  VOLUP_REFUSE_IF(!problem.weights.finite, "needs finite weights");
  VOLUP_REFUSE_IF(g.groups != 1, "needs one group, got ", g.groups);
  for (int axis = 0; axis < 3; ++axis) {
    VOLUP_REFUSE_IF(g.kernel[axis] > 5, "needs kernel sizes to 5, got ", g.kernel);
    VOLUP_REFUSE_IF(g.stride[axis] > 3, "needs strides to 3, got ", g.stride);
    VOLUP_REFUSE_IF(g.dilation[axis] > 2, "needs dilations to 2, got ", g.dilation);
    VOLUP_REFUSE_IF(g.padding_begin[axis] > 64, "needs padding to 64, got ", g.padding_begin);
  }
  VOLUP_REFUSE_IF(g.in_channels < 4, "needs 4 input channels or more, got ", g.in_channels);
  // Rounding towards zero in the tensor cores grows with the sum's length.
  VOLUP_REFUSE_IF(g.in_channels * g.taps() > 32 * 1024, "needs in_channels * taps to 32768, got ",
                  g.in_channels * g.taps());
  // A softmax needs all channels of a voxel in one tile.
  VOLUP_REFUSE_IF(problem.epilogue.kind == EpilogueKind::kSoftmaxSigmoid && g.out_channels > 64,
                  "needs at most 64 channels for softmax, got ", g.out_channels);
  for (int axis = 0; axis < 5; ++axis) {
    VOLUP_REFUSE_IF(problem.input[axis] >= 1 << 30 || problem.conv_output[axis] >= 1 << 30,
                    "needs sizes below 2^30, got ", problem.input);
  }
  if (auto refusal =
          refuse_plan(make_plan(problem, engine_of(problem, device), 1, device), device)) {
    return refusal;
  }
  int64_t tiles = problem.conv_output[0];
  for (int axis = 2; axis < 5; ++axis) {
    if (!checked_multiply(
            tiles,
            axis == 2 ? problem.conv_output[axis] : problem.conv_output[axis] / kSquareEdge + 1,
            &tiles) ||
        tiles >= int64_t{1} << 28) {
      return cat("needs fewer than 2^28 tiles, got output ", problem.conv_output);
    }
  }
  return std::nullopt;
}

Refusal refuse_wide(const Problem& problem, const DeviceProperties& device) {
  if (auto refusal = refuse(problem, device)) return refusal;
  const Engine engine = engine_of(problem, device);
  if (engine == kUnscaledEngine) return refuse_scaled(problem, device);
  const int64_t columns = problem.conv_output[4];
  VOLUP_REFUSE_IF(problem.geometry.stride[2] != 2, "needs stride 2 along W, got ",
                  problem.geometry.stride[2]);
  VOLUP_REFUSE_IF(columns % 2 != 0 || columns <= 2 * kSquareEdge,
                  "needs an even output width over ", 2 * kSquareEdge, ", got ", columns);
  // What bulk copies take.
  const auto whole_row = [&](int64_t elements) {
    return elements * static_cast<int64_t>(element_size(problem.io)) % 16 == 0;
  };
  VOLUP_REFUSE_IF(!whole_row(problem.input[4]), "needs input rows of whole 16 bytes, got width ",
                  problem.input[4]);
  VOLUP_REFUSE_IF(takes_add(problem.epilogue.kind) && !whole_row(columns),
                  "needs output rows of whole 16 bytes to add, got width ", columns);
  return refuse_plan(make_plan(problem, engine, 2, device), device);
}

Engine engine_of(const Problem& problem, const DeviceProperties& device) {
  const Engine engine = *engine_for(problem.precision, problem.io);
  return engine == kUnscaledEngine && !refuse_scaled(problem, device) ? kScaledEngine : engine;
}

}  // namespace volup::sm90
