// SPDX-License-Identifier: Apache-2.0
//
// CUDA runtime errors as Status.
#ifndef VOLUP_CUDA_CUDA_ERROR_H_
#define VOLUP_CUDA_CUDA_ERROR_H_

#include <cuda_runtime_api.h>

#include "status.h"

namespace volup {

// The runtime remembers its last error and hands it to whoever asks next; asking here keeps ours
// from the caller's own checks.
inline Status cuda_status(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  const volup_status code =
      error == cudaErrorMemoryAllocation ? VOLUP_STATUS_OUT_OF_MEMORY : VOLUP_STATUS_DEVICE_ERROR;
  return {code, cat(what, ": got ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")")};
}

}  // namespace volup

// Leaves the function with a Status that says what failed, if the CUDA call did.
#define VOLUP_RETURN_IF_CUDA_ERROR(call, what) \
  VOLUP_RETURN_IF_ERROR(::volup::cuda_status((call), (what)))

#endif  // VOLUP_CUDA_CUDA_ERROR_H_
