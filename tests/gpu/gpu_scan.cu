// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "gpu_scan.h"

namespace volup::test {
namespace {

template <typename Bits>
__global__ void count_ones(const Bits* values, int64_t count, unsigned long long* found) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  unsigned long long mine = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    mine += values[i] == static_cast<Bits>(-1);
  }
  if (mine != 0) atomicAdd(found, mine);
}

}  // namespace

int64_t count_poison(const void* out, int64_t elements, size_t element_bytes) {
  unsigned long long* found = nullptr;
  if (cudaMalloc(&found, sizeof(*found)) != cudaSuccess) return -1;
  unsigned long long count = 0;
  bool ok = cudaMemset(found, 0, sizeof(*found)) == cudaSuccess;
  if (element_bytes == 4) {
    count_ones<<<1024, 256>>>(static_cast<const uint32_t*>(out), elements, found);
  } else {
    count_ones<<<1024, 256>>>(static_cast<const uint16_t*>(out), elements, found);
  }
  ok = ok && cudaMemcpy(&count, found, sizeof(count), cudaMemcpyDeviceToHost) == cudaSuccess;
  return cudaFree(found) == cudaSuccess && ok ? static_cast<int64_t>(count) : -1;
}

}  // namespace volup::test
