// SPDX-License-Identifier: Apache-2.0
//
// cpu/reference: the transposed convolution straight from its definition, summed in float64, with
// the epilogue in float64 and one rounding to the I/O type. The oracle of the tests: it shares
// nothing with other kernels but epilogue.h, and takes its rules of geometry from no decomposition.
#ifndef VOLUP_CPU_REFERENCE_H_
#define VOLUP_CPU_REFERENCE_H_

#include "kernel.h"

namespace volup {

class CpuReferenceKernel final : public Kernel {
 public:
  std::string_view name() const override { return "cpu/reference"; }
  DeviceType device() const override { return DeviceType::kCpu; }
  Refusal refuse(const Problem& problem, const DeviceProperties& device) const override;
  std::string choose(const Problem& problem, const DeviceProperties& device) const override;
  Result<size_t> workspace_bytes(const Problem& problem, const DeviceProperties& device,
                                 size_t limit) const override;
  Result<std::vector<std::byte>> pack(const Model& model, const Problem& problem,
                                      const DeviceProperties& device) const override;
  Result<std::unique_ptr<Launch>> prepare(const Problem& problem, const DeviceProperties& device,
                                          const PrepareArguments& arguments) const override;
};

}  // namespace volup

#endif  // VOLUP_CPU_REFERENCE_H_
