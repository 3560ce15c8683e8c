// SPDX-License-Identifier: Apache-2.0
//
// The launch of a kernel whose parameters hold x and mma::FinishParameters: those of mma.sync and
// the marching one.
#ifndef VOLUP_CUDA_MMA_LAUNCH_H_
#define VOLUP_CUDA_MMA_LAUNCH_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string_view>

#include "cuda/cuda_error.h"
#include "cuda/dependent_launch.h"
#include "kernel.h"

namespace volup::mma {

struct Grid {
  unsigned blocks;
  unsigned threads;  // of a block
  size_t shared_bytes = 0;
  bool dependent = false;  // the kernel waits by itself, as launch_dependent asks of it
};

template <typename Parameters>
class KernelLaunch final : public Launch {
 public:
  // name: of the kernel; lives as long as the program. parameters: but for the tensors.
  KernelLaunch(std::string_view name, const void* function, const Parameters& parameters,
               const Grid& grid)
      : name_(name), function_(function), parameters_(parameters), grid_(grid) {}

  Status run(const RunArguments& arguments) const override {
    Parameters p = parameters_;
    p.x = arguments.x;
    p.finish.add = arguments.add;
    p.finish.out = arguments.out;
    void* list[] = {&p};
    const cudaError_t error =
        grid_.dependent
            ? launch_dependent(function_, grid_.blocks, grid_.threads, grid_.shared_bytes, list,
                               arguments.stream)
            : cudaLaunchKernel(function_, dim3(grid_.blocks), dim3(grid_.threads), list,
                               grid_.shared_bytes, static_cast<cudaStream_t>(arguments.stream));
    if (error == cudaSuccess) return {};
    return cuda_status(error, cat("launch of ", name_));
  }

 private:
  std::string_view name_;
  const void* function_;
  Parameters parameters_;
  Grid grid_;
};

}  // namespace volup::mma

#endif  // VOLUP_CUDA_MMA_LAUNCH_H_
