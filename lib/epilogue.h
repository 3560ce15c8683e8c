// SPDX-License-Identifier: Apache-2.0
//
// What follows the convolution: each formula once, for host and device, in float and double.
// Kernels that evaluate one differently for speed are held to these by the tests.
//
// NaN and infinity go through as in PyTorch: clamps pass NaN on, logsumexp of all -inf is -inf, a
// softmax row with +inf, NaN or nothing but -inf is NaN.
#ifndef VOLUP_EPILOGUE_H_
#define VOLUP_EPILOGUE_H_

#include <cmath>
#include <cstdint>

#include "volup/volup.h"

#if defined(__CUDACC__)
#define VOLUP_HOST_DEVICE __host__ __device__
#else
#define VOLUP_HOST_DEVICE
#endif

namespace volup {

enum class EpilogueKind : int32_t {
  kIdentity = VOLUP_EPILOGUE_IDENTITY,
  kLogsumexpSwishClamp = VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP,
  kSoftmaxSigmoid = VOLUP_EPILOGUE_SOFTMAX_SIGMOID,
  kAddHardswish = VOLUP_EPILOGUE_ADD_HARDSWISH
};
inline constexpr int kEpilogueCount = 4;

struct Epilogue {
  EpilogueKind kind = EpilogueKind::kIdentity;
  float shift = 0;
  float divisor = 1;
  float subtract = 0;
  float clamp_min = 0;
  float clamp_max = 0;
  bool operator==(const Epilogue&) const = default;
};

// The epilogue of a kind with the constants of the reference models (subtract 0).
constexpr Epilogue default_epilogue(EpilogueKind kind) {
  switch (kind) {
    case EpilogueKind::kLogsumexpSwishClamp:
      return {kind, 3.0f, 6.0f, 0.0f, -1.0f, 1.0f};
    case EpilogueKind::kAddHardswish:
      return {kind, 3.0f, 6.0f, 0.0f, 0.0f, 6.0f};
    case EpilogueKind::kIdentity:
    case EpilogueKind::kSoftmaxSigmoid:
      break;
  }
  return {kind, 0.0f, 1.0f, 0.0f, 0.0f, 0.0f};
}

// e with the constants that its kind does not name at their defaults.
constexpr Epilogue normalized(Epilogue e) {
  if (e.kind == EpilogueKind::kIdentity || e.kind == EpilogueKind::kSoftmaxSigmoid) {
    return default_epilogue(e.kind);
  }
  if (e.kind == EpilogueKind::kAddHardswish) e.subtract = default_epilogue(e.kind).subtract;
  return e;
}

constexpr const char* name_of(EpilogueKind kind) {
  switch (kind) {
    case EpilogueKind::kLogsumexpSwishClamp:
      return "logsumexp_swish_clamp";
    case EpilogueKind::kSoftmaxSigmoid:
      return "softmax_sigmoid";
    case EpilogueKind::kAddHardswish:
      return "add_hardswish";
    case EpilogueKind::kIdentity:
      break;
  }
  return "identity";
}

// The letter of the problem string.
constexpr char letter_of(EpilogueKind kind) { return "IABC"[static_cast<int>(kind)]; }

constexpr bool takes_add(EpilogueKind kind) { return kind == EpilogueKind::kAddHardswish; }
constexpr bool reduces_channels(EpilogueKind kind) {
  return kind == EpilogueKind::kLogsumexpSwishClamp;
}
// Needs all channels of a voxel at once.
constexpr bool couples_channels(EpilogueKind kind) {
  return kind == EpilogueKind::kLogsumexpSwishClamp || kind == EpilogueKind::kSoftmaxSigmoid;
}

// Comparisons with NaN are false, so NaN passes.
template <typename T>
VOLUP_HOST_DEVICE inline T clamp_keeping_nan(T value, T low, T high) {
  return value < low ? low : (value > high ? high : value);
}

template <typename T>
VOLUP_HOST_DEVICE inline T sigmoid(T value) {
  return T(1) / (T(1) + std::exp(-value));
}

// logsumexp_swish_clamp after the logsumexp l.
template <typename T>
VOLUP_HOST_DEVICE inline T swish_clamp(T l, const Epilogue& e) {
  const T gated = l * sigmoid(l + T(e.shift)) / T(e.divisor);
  return clamp_keeping_nan(gated - T(e.subtract), T(e.clamp_min), T(e.clamp_max));
}

// add_hardswish after t = y + add. The order is part of the definition: t * t first overflows.
template <typename T>
VOLUP_HOST_DEVICE inline T hardswish_product(T t, const Epilogue& e) {
  const T gate = clamp_keeping_nan(t + T(e.shift), T(e.clamp_min), T(e.clamp_max)) / T(e.divisor);
  return (t * gate) * t;
}

// Maximum of count values get(c), NaN if any is.
template <typename T, typename Get>
VOLUP_HOST_DEVICE inline T maximum_keeping_nan(int64_t count, const Get& get) {
  T maximum = get(0);
  for (int64_t c = 1; c < count; ++c) {
    const T value = get(c);
    if (value > maximum || value != value) maximum = value;
    if (maximum != maximum) return maximum;
  }
  return maximum;
}

// logsumexp of count values get(c); an infinite maximum is replaced by 0, as in ATen.
template <typename T, typename Get>
VOLUP_HOST_DEVICE inline T logsumexp(int64_t count, const Get& get) {
  T maximum = maximum_keeping_nan<T>(count, get);
  if (maximum != maximum) return maximum;
  if (maximum - maximum != T(0)) maximum = T(0);
  T sum = 0;
  for (int64_t c = 0; c < count; ++c) sum += std::exp(get(c) - maximum);
  return std::log(sum) + maximum;
}

// sigmoid of the softmax of count values get(c), given to put(c, value).
template <typename T, typename Get, typename Put>
VOLUP_HOST_DEVICE inline void softmax_sigmoid(int64_t count, const Get& get, const Put& put) {
  const T maximum = maximum_keeping_nan<T>(count, get);
  T sum = 0;
  for (int64_t c = 0; c < count; ++c) sum += std::exp(get(c) - maximum);
  for (int64_t c = 0; c < count; ++c) put(c, sigmoid(std::exp(get(c) - maximum) / sum));
}

}  // namespace volup

#endif  // VOLUP_EPILOGUE_H_
