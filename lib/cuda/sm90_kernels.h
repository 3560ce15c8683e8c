// SPDX-License-Identifier: Apache-2.0
//
// The kernels for compute capability 9.0 alone, as kernel_list.cpp names them.
#ifndef VOLUP_CUDA_SM90_KERNELS_H_
#define VOLUP_CUDA_SM90_KERNELS_H_

#include "kernel.h"

namespace volup {

// "cuda/sm90": one fused kernel, products by wgmma; fp32-class by splitting operands in three.
const Kernel& cuda_sm90_kernel();

}  // namespace volup

#endif  // VOLUP_CUDA_SM90_KERNELS_H_
