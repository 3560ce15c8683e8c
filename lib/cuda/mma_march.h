// SPDX-License-Identifier: Apache-2.0
//
// The marching kernel as cuda/mma-rows uses it, in place of the kernel of mma_rows.cuh where
// takes() says so. The other functions are those of kernel.h's Kernel, for problems that it takes.
#ifndef VOLUP_CUDA_MMA_MARCH_H_
#define VOLUP_CUDA_MMA_MARCH_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernel.h"

namespace volup::mma_march {

// Of a problem that cuda/mma-rows does not refuse.
bool takes(const Problem& problem, const DeviceProperties& device);

std::string choose(const Problem& problem);
std::string pack_key(const Problem& problem);
std::vector<std::byte> pack(const Model& model, const Problem& problem);
std::unique_ptr<Launch> prepare(const Problem& problem, const DeviceProperties& device,
                                const PrepareArguments& arguments);

}  // namespace volup::mma_march

#endif  // VOLUP_CUDA_MMA_MARCH_H_
