// SPDX-License-Identifier: Apache-2.0
//
// Instances of the sm_90a kernel: fp32 I/O, fp32-class products.
#include "cuda/sm90_instance.cuh"

namespace volup::sm90 {

std::span<const Instance> fp32_instances() {
  using enum Engine;
  using enum EpilogueKind;
  static const Instance kInstances[] = {
      instance<kBf16x3, kIdentity, float, 64, 1>(DType::kFp32),
      instance<kBf16x3, kAddHardswish, float, 64, 1>(DType::kFp32),
      instance<kBf16x3, kSoftmaxSigmoid, float, 64, 1>(DType::kFp32),
      instance<kFp16x2, kIdentity, float, 64, 1>(DType::kFp32),
      instance<kFp16x2, kIdentity, float, 64, 2>(DType::kFp32),
      instance<kFp16x2, kAddHardswish, float, 64, 1>(DType::kFp32),
      instance<kFp16x2, kAddHardswish, float, 64, 2>(DType::kFp32),
      instance<kFp16x2, kSoftmaxSigmoid, float, 64, 1>(DType::kFp32),
      instance<kFp16x2, kSoftmaxSigmoid, float, 64, 2>(DType::kFp32),
  };
  return kInstances;
}

}  // namespace volup::sm90
