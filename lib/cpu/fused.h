// SPDX-License-Identifier: Apache-2.0
//
// cpu/fused: convolution and epilogue in one pass over the output, in fp32, vectorised along W. The
// plan is in fused_plan.h, the vector code behind fused_simd.h; this is the Kernel around them.
#ifndef VOLUP_CPU_FUSED_H_
#define VOLUP_CPU_FUSED_H_

#include "kernel.h"

namespace volup {

class CpuFusedKernel final : public Kernel {
 public:
  std::string_view name() const override { return "cpu/fused"; }
  DeviceType device() const override { return DeviceType::kCpu; }
  Refusal refuse(const Problem& problem, const DeviceProperties& device) const override;
  std::string choose(const Problem& problem, const DeviceProperties& device) const override;
  Result<size_t> workspace_bytes(const Problem& problem, const DeviceProperties& device,
                                 size_t limit) const override;
  std::string pack_key(const Problem& problem, const DeviceProperties& device) const override;
  Result<std::vector<std::byte>> pack(const Model& model, const Problem& problem,
                                      const DeviceProperties& device) const override;
  Result<std::unique_ptr<Launch>> prepare(const Problem& problem, const DeviceProperties& device,
                                          const PrepareArguments& arguments) const override;
};

}  // namespace volup

#endif  // VOLUP_CPU_FUSED_H_
