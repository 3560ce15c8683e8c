// SPDX-License-Identifier: Apache-2.0
//
// The kernels for compute capability 9.0 alone, as kernel_list.cpp names them.
#ifndef VOLUP_CUDA_SM90_KERNELS_H_
#define VOLUP_CUDA_SM90_KERNELS_H_

#include "kernel.h"

namespace volup {

// "cuda/sm90-march": at most 3 input and 16 output channels, every axis of stride 2 with one tap in
// one phase and two in the other; logsumexp or plain logits.
const Kernel& cuda_sm90_march_kernel();

// "cuda/sm90": one fused kernel, products by wgmma; fp32-class by splitting operands in three.
const Kernel& cuda_sm90_kernel();

// "cuda/sm90-wide": the same with tiles twice as wide, whose outputs fill lines of memory: stride 2
// along W, rows of whole 16 bytes, not for fp32 products. Its outputs have the bits of "cuda/sm90",
// whose launch it is for pointers that bulk copies cannot take.
const Kernel& cuda_sm90_wide_kernel();

}  // namespace volup

#endif  // VOLUP_CUDA_SM90_KERNELS_H_
