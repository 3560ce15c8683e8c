// SPDX-License-Identifier: Apache-2.0
//
// The instances of "cuda/sm90"'s kernel, as the host names them: by engine, epilogue, element type
// and tile. Their code is in sm90_*.cu, which are compiled for sm_90a alone.
#ifndef VOLUP_CUDA_SM90_LAUNCH_H_
#define VOLUP_CUDA_SM90_LAUNCH_H_

#include <span>

#include "cuda/sm90_layout.h"
#include "tensor.h"

namespace volup::sm90 {

struct Instance {
  Engine engine;
  EpilogueKind kind;
  DType io;
  int channels;
  int squares;         // of a tile
  int threads;         // of a block
  const void* kernel;  // for cudaLaunchKernelExC and cudaFuncSetAttribute; takes Parameters
};

std::span<const Instance> fp32_instances();
std::span<const Instance> tf32_instances();
std::span<const Instance> bits16_instances();

// The kernel that measures the ranges of all pieces of x, a block each. Its arguments: x, elements
// of a sample, most elements of a piece, pieces of a sample, ranges, left_some.
struct RangeKernel {
  const void* kernel;
  int threads;
};
RangeKernel range_kernel();

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_LAUNCH_H_
