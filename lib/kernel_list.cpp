// SPDX-License-Identifier: Apache-2.0
//
// THE list of kernels, best first. Read this first: a problem is served by the first kernel of its
// device that neither refuses it nor defers to another that accepts it.
#include "cpu/cpu_kernels.h"
#include "kernel.h"
#if VOLUP_WITH_CUDA
#include "cuda/cuda_kernels.h"
#include "cuda/mma_kernels.h"
#include "cuda/sm90_kernels.h"
#endif

namespace volup {

std::span<const Kernel* const> kernel_list() {
  static const Kernel* const kList[] = {
#if VOLUP_WITH_CUDA
    &cuda_sm90_march_kernel(),  // few channels, stride 2 on all axes: wgmma, marching along D
    &cuda_mma_rows_kernel(),    // few channels, stride 2: all phases of a row, tensor cores
    &cuda_sm90_wide_kernel(),   // wgmma, tiles whose outputs fill lines of memory
    &cuda_sm90_kernel(),        // wgmma, operands split by a loader warpgroup
    &cuda_mma_kernel(),         // any geometry, operands gathered, tensor cores
    &cuda_simt_kernel(),        // every shape, fp32 FMA
    &cuda_cudnn_kernel(),       // cuDNN data gradient + fused epilogue pass
#endif
    &cpu_fused_kernel(),      // vectors along W, convolution and epilogue in one pass
    &cpu_reference_kernel(),  // every shape, float64 sums: the oracle
  };
  return kList;
}

namespace {

// Why kernel cannot take the problem, from itself or from an earlier try.
Refusal refusal_of(const Kernel& kernel, const Problem& problem, const DeviceProperties& device,
                   std::span<const KernelRefusal> failed) {
  for (const KernelRefusal& known : failed) {
    if (known.kernel == kernel.name()) return known.why;
  }
  return kernel.refuse(problem, device);
}

// As refusal_of; or the deferral, where it goes to a kernel that accepts.
Refusal why_not(const Kernel& kernel, const Problem& problem, const DeviceProperties& device,
                std::span<const KernelRefusal> failed) {
  if (auto refusal = refusal_of(kernel, problem, device, failed)) return refusal;
  const std::string_view other = kernel.defer_to(problem, device);
  if (other.empty()) return std::nullopt;
  for (const Kernel* candidate : kernel_list()) {
    if (candidate->name() == other && !refusal_of(*candidate, problem, device, failed)) {
      return cat("defers to ", other, ", which is faster here");
    }
  }
  return std::nullopt;
}

Result<Choice> force_kernel(const Problem& problem, const DeviceProperties& device,
                            std::string_view forced) {
  std::string known;
  Choice choice;
  for (const Kernel* kernel : kernel_list()) {
    if (kernel->device() != device.type) continue;
    known += cat(known.empty() ? "" : ", ", kernel->name());
    if (kernel->name() != forced) {
      choice.refused.push_back({kernel->name(), cat("not asked for: ", forced, " is forced")});
      continue;
    }
    if (const auto refusal = kernel->refuse(problem, device)) {
      return unsupported(forced, " refuses '", print(problem), "': ", *refusal);
    }
    choice.kernel = kernel;
  }
  if (choice.kernel == nullptr) {
    return invalid_argument("kernel: got '", forced, "', need one of ", known, " on ",
                            name_of(device.type));
  }
  return choice;
}

}  // namespace

Result<Choice> choose_kernel(const Problem& problem, const DeviceProperties& device,
                             std::string_view forced, std::span<const KernelRefusal> failed) {
  if (!forced.empty()) return force_kernel(problem, device, forced);
  Choice choice;
  for (const Kernel* kernel : kernel_list()) {
    if (kernel->device() != device.type) continue;
    if (choice.kernel != nullptr) {
      auto refusal = refusal_of(*kernel, problem, device, failed);
      choice.refused.push_back(
          {kernel->name(), refusal ? *refusal : cat("comes after ", choice.kernel->name())});
    } else if (auto why = why_not(*kernel, problem, device, failed)) {
      choice.refused.push_back({kernel->name(), *why});
    } else {
      choice.kernel = kernel;
    }
  }
  if (choice.kernel == nullptr) {
    std::string all;
    for (const KernelRefusal& refusal : choice.refused) {
      all += cat("; ", refusal.kernel, ": ", refusal.why);
    }
    return unsupported("no kernel takes '", print(problem), "' on ", name_of(device.type), all);
  }
  return choice;
}

}  // namespace volup
