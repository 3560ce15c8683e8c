// SPDX-License-Identifier: Apache-2.0
//
// Instances of the sm_90a kernel: fp32 I/O, fp32-class products.
#include "cuda/sm90_kernel.cuh"
#include "cuda/sm90_launch.h"

namespace volup::sm90 {
namespace {

template <Engine kEngine, EpilogueKind kKind, typename Io, int kN, int kSquares>
Instance instance(DType io) {
  return {kEngine,
          kKind,
          io,
          kN,
          kSquares,
          RolesOf<kSquares>::kThreads,
          reinterpret_cast<const void*>(&fused_kernel<kEngine, kKind, Io, kN, kSquares>)};
}

}  // namespace

std::span<const Instance> fp32_instances() {
  using enum Engine;
  using enum EpilogueKind;
  static const Instance kInstances[] = {
      instance<kBf16x3, kIdentity, float, 64, 1>(DType::kFp32),
      instance<kBf16x3, kAddHardswish, float, 64, 1>(DType::kFp32),
      instance<kBf16x3, kSoftmaxSigmoid, float, 64, 1>(DType::kFp32),
  };
  return kInstances;
}

}  // namespace volup::sm90
