// SPDX-License-Identifier: Apache-2.0
//
// A kernel that lets the next one in its stream start early, and takes its time.
#ifndef VOLUP_TESTS_GPU_LATE_COPY_H_
#define VOLUP_TESTS_GPU_LATE_COPY_H_

#include <cuda_runtime_api.h>

#include <cstddef>

namespace volup::test {

struct LateCopy {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;  // a multiple of 2
};
inline constexpr int kLateCopies = 3;

// Makes all copies in one kernel on stream, some 200 us after it has told that the next kernel may
// start (programmatic dependent launch, compute capability 9.0; elsewhere it tells nothing).
cudaError_t copy_late(const LateCopy (&copies)[kLateCopies], cudaStream_t stream);

}  // namespace volup::test

#endif  // VOLUP_TESTS_GPU_LATE_COPY_H_
