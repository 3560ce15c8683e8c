// SPDX-License-Identifier: Apache-2.0
//
// THE list of kernels, best first. Read this first: a problem is served by the first kernel of its
// device that neither refuses it nor defers to another that accepts it.
#include "cpu/cpu_kernels.h"
#include "kernel.h"
#if VOLUP_WITH_CUDA
#include "cuda/cuda_kernels.h"
#endif

namespace volup {

std::span<const Kernel* const> kernel_list() {
  static const Kernel* const kList[] = {
#if VOLUP_WITH_CUDA
    &cuda_simt_kernel(),   // every shape, fp32 FMA
    &cuda_cudnn_kernel(),  // cuDNN data gradient + fused epilogue pass
#endif
    &cpu_reference_kernel(),  // every shape, float64 sums: the oracle
  };
  return kList;
}

namespace {

// Why kernel does not take the problem: refusal, or deferral to one that accepts.
Refusal why_not(const Kernel& kernel, const Problem& problem, const DeviceProperties& device) {
  if (auto refusal = kernel.refuse(problem, device)) return refusal;
  const std::string_view other = kernel.defer_to(problem, device);
  if (other.empty()) return std::nullopt;
  for (const Kernel* candidate : kernel_list()) {
    if (candidate->name() == other && !candidate->refuse(problem, device)) {
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
                             std::string_view forced) {
  if (!forced.empty()) return force_kernel(problem, device, forced);
  Choice choice;
  for (const Kernel* kernel : kernel_list()) {
    if (kernel->device() != device.type) continue;
    if (choice.kernel != nullptr) {
      auto refusal = kernel->refuse(problem, device);
      choice.refused.push_back(
          {kernel->name(), refusal ? *refusal : cat("comes after ", choice.kernel->name())});
    } else if (auto why = why_not(*kernel, problem, device)) {
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
