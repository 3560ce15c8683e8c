// SPDX-License-Identifier: Apache-2.0
//
// Weights of the mma.sync kernels as the host packs them: each in two TF32 parts, in the order in
// which a lane takes them. Which weight goes where is the kernels' own business.
#ifndef VOLUP_CUDA_MMA_WEIGHTS_H_
#define VOLUP_CUDA_MMA_WEIGHTS_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "model.h"

namespace volup::mma {

// B fragment of one lane for an m16n8k8 product: value of k = t and k = t + 4, column g.
struct alignas(16) WeightFragment {
  float high[2];
  float low[2];  // what high leaves; 0 where products are not compensated
};

struct SplitWeight {
  float high;
  float low;
};

// Nearest TF32 (11 significant bits) of a finite value, toward zero where that would be infinite.
inline float tf32_from(double value) {
  const auto single = static_cast<float>(value);
  const auto bits = std::bit_cast<uint32_t>(single);
  const float nearest = std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu);
  return std::isfinite(nearest) ? nearest : std::bit_cast<float>(bits & ~0x1fffu);
}

inline SplitWeight split(double value) {
  const float high = tf32_from(value);
  return {high, tf32_from(value - high)};
}

// The factor on weights and bias: epilogues that couple channels take logits in base 2.
inline double logit_scale(const Epilogue& epilogue) {
  return couples_channels(epilogue.kind) ? 1.44269504088896340736 : 1.0;
}

inline double weight_at(const Model& model, int64_t ci, int64_t co, int64_t kd, int64_t kh,
                        int64_t kw) {
  const ConvTranspose3d& g = model.geometry();
  const int64_t block = ci * g.out_per_group() + co;
  return model.weight()[((block * g.kernel[0] + kd) * g.kernel[1] + kh) * g.kernel[2] + kw];
}

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace volup::mma

#endif  // VOLUP_CUDA_MMA_WEIGHTS_H_
