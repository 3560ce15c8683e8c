// SPDX-License-Identifier: Apache-2.0
//
// Instances of the sm_90a kernel: fp16 and bf16 I/O and products.
#include "cuda/sm90_instance.cuh"

namespace volup::sm90 {

std::span<const Instance> bits16_instances() {
  using enum Engine;
  using enum EpilogueKind;
  static const Instance kInstances[] = {
      instance<kFp16x1, kIdentity, __half, 64, 1>(DType::kFp16),
      instance<kFp16x1, kIdentity, __half, 64, 2>(DType::kFp16),
      instance<kFp16x1, kAddHardswish, __half, 64, 1>(DType::kFp16),
      instance<kFp16x1, kAddHardswish, __half, 64, 2>(DType::kFp16),
      instance<kFp16x1, kSoftmaxSigmoid, __half, 64, 1>(DType::kFp16),
      instance<kFp16x1, kSoftmaxSigmoid, __half, 64, 2>(DType::kFp16),
      instance<kBf16x1, kIdentity, __nv_bfloat16, 64, 1>(DType::kBf16),
      instance<kBf16x1, kIdentity, __nv_bfloat16, 64, 2>(DType::kBf16),
      instance<kBf16x1, kAddHardswish, __nv_bfloat16, 64, 1>(DType::kBf16),
      instance<kBf16x1, kAddHardswish, __nv_bfloat16, 64, 2>(DType::kBf16),
      instance<kBf16x1, kSoftmaxSigmoid, __nv_bfloat16, 64, 1>(DType::kBf16),
      instance<kBf16x1, kSoftmaxSigmoid, __nv_bfloat16, 64, 2>(DType::kBf16),
  };
  return kInstances;
}

}  // namespace volup::sm90
