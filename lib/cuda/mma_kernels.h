// SPDX-License-Identifier: Apache-2.0
//
// The portable tensor-core kernels (mma.sync, sm_80 and later), as kernel_list.cpp names them.
#ifndef VOLUP_CUDA_MMA_KERNELS_H_
#define VOLUP_CUDA_MMA_KERNELS_H_

#include "kernel.h"

namespace volup {

// Few channels, stride 2 with one and two taps along H and W: all four phases of a row at once.
const Kernel& cuda_mma_rows_kernel();

// Any geometry, up to 64 output channels a tile: one phase at a time, operands gathered.
const Kernel& cuda_mma_kernel();

}  // namespace volup

#endif  // VOLUP_CUDA_MMA_KERNELS_H_
