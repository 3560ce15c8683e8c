// SPDX-License-Identifier: Apache-2.0
//
// The second half of a fallback that leaves a convolution without bias in memory: bias and epilogue
// in one kernel; and the widening of 16-bit input before it. Launches only.
#ifndef VOLUP_CUDA_EPILOGUE_PASS_H_
#define VOLUP_CUDA_EPILOGUE_PASS_H_

#include <cuda_runtime_api.h>

#include "epilogue.h"
#include "status.h"
#include "tensor.h"

namespace volup {

struct EpiloguePass {
  const float* logits = nullptr;  // [samples, channels, plane]
  const float* bias = nullptr;    // [channels]
  const void* add = nullptr;      // as out, where the epilogue takes it
  void* out = nullptr;            // [samples, channels or 1, plane] in the I/O dtype
  Epilogue epilogue;
  int64_t samples = 0;
  int64_t channels = 0;
  int64_t plane = 0;
};

Status launch_epilogue_pass(const EpiloguePass& pass, DType io, cudaStream_t stream);

// Copies count elements at from, aligned as elements, to floats.
Status launch_widen(const void* from, DType io, float* to, int64_t count, cudaStream_t stream);

// Loads both kernels, so that a later launch can be captured.
Status load_epilogue_pass(EpilogueKind kind, DType io);

}  // namespace volup

#endif  // VOLUP_CUDA_EPILOGUE_PASS_H_
