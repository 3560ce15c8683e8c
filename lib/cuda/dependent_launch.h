// SPDX-License-Identifier: Apache-2.0
//
// Programmatic dependent launch: a kernel starts while the one before it in the stream still ends.
#ifndef VOLUP_CUDA_DEPENDENT_LAUNCH_H_
#define VOLUP_CUDA_DEPENDENT_LAUNCH_H_

#include <cuda_runtime_api.h>

#include <cstddef>

namespace volup {

// Whether graphs know of launches that start early. Where they do not, none starts so: a launch
// does not know whether it is captured.
inline bool dependent_launches_work() {
  static const bool work = [] {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess && version >= 12030;
  }();
  return work;
}

// Launches a kernel that waits by itself (ptx::grid_dependency_wait) before it reads or writes what
// anything before it in the stream may write or read: tensors and workspace, not weights. It may
// start as soon as the kernel before it says so, volup's by ptx::grid_launch_dependents, and waits
// until that one has ended. A thread of each of its blocks must wait, so that it never ends before
// that one: then what came before the kernel before has ended, too.
inline cudaError_t launch_dependent(const void* function, unsigned blocks, unsigned threads,
                                    size_t shared_bytes, void** arguments, void* stream) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.attrs = &attribute;
  config.numAttrs = dependent_launches_work() ? 1 : 0;
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  return cudaLaunchKernelExC(&config, function, arguments);
}

}  // namespace volup

#endif  // VOLUP_CUDA_DEPENDENT_LAUNCH_H_
