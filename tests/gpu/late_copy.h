// SPDX-License-Identifier: Apache-2.0
//
// A kernel that lets the next one in its stream start early, and takes its time.
#ifndef VOLUP_TESTS_GPU_LATE_COPY_H_
#define VOLUP_TESTS_GPU_LATE_COPY_H_

#include <cuda_runtime_api.h>

#include <cstddef>

namespace volup::test {

// Copies bytes, a multiple of 2, from one place to another on stream, some 200 us after it has told
// that the next kernel may start (programmatic dependent launch).
cudaError_t copy_late(void* to, const void* from, size_t bytes, cudaStream_t stream);

}  // namespace volup::test

#endif  // VOLUP_TESTS_GPU_LATE_COPY_H_
