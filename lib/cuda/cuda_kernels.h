// SPDX-License-Identifier: Apache-2.0
//
// The portable CUDA kernels, as kernel_list.cpp names them. Making one touches no GPU.
#ifndef VOLUP_CUDA_CUDA_KERNELS_H_
#define VOLUP_CUDA_CUDA_KERNELS_H_

#include "kernel.h"

namespace volup {

// "cuda/simt": convolution and epilogue in one kernel, fp32 FMA, every shape.
const Kernel& cuda_simt_kernel();

// "cuda/cudnn": cuDNN's data gradient into a workspace, then an epilogue kernel.
const Kernel& cuda_cudnn_kernel();

}  // namespace volup

#endif  // VOLUP_CUDA_CUDA_KERNELS_H_
