// SPDX-License-Identifier: Apache-2.0
//
// One instance of the kernel of "cuda/sm90", with what the host must know of it. Which instances
// there are is in sm90_*.cu.
#ifndef VOLUP_CUDA_SM90_INSTANCE_CUH_
#define VOLUP_CUDA_SM90_INSTANCE_CUH_

#include "cuda/sm90_kernel.cuh"
#include "cuda/sm90_launch.h"

namespace volup::sm90 {

// io: of Io.
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

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_INSTANCE_CUH_
