// SPDX-License-Identifier: Apache-2.0
//
// The CPU kernels, as kernel_list.cpp names them.
#ifndef VOLUP_CPU_CPU_KERNELS_H_
#define VOLUP_CPU_CPU_KERNELS_H_

#include "kernel.h"

namespace volup {

// fp32 arithmetic, vectorised along x, convolution and epilogue in one pass.
const Kernel& cpu_fused_kernel();

// The definition in float64: accepts every valid problem.
const Kernel& cpu_reference_kernel();

}  // namespace volup

#endif  // VOLUP_CPU_CPU_KERNELS_H_
