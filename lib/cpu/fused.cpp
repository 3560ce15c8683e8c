// SPDX-License-Identifier: Apache-2.0
#include "cpu/fused.h"

#include <cstring>
#include <limits>

#include "cpu/cpu_kernels.h"
#include "cpu/fused_plan.h"
#include "cpu/fused_simd.h"
#include "cpu/thread_pool.h"

namespace volup {
namespace {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

class FusedLaunch final : public Launch {
 public:
  FusedLaunch(FusedPlan plan, const PrepareArguments& arguments)
      : plan_(std::move(plan)), arguments_(arguments) {}

  Status run(const RunArguments& arguments) const override {
    const FusedTarget& target = fused_target(plan_.isa);
    arguments.threads->run(plan_.tasks(), [&](int64_t task, int worker) {
      float* scratch = static_cast<float*>(arguments_.workspace) + worker * plan_.worker_floats;
      target.run({&plan_, static_cast<const float*>(arguments_.packed), arguments.x, arguments.add,
                  arguments.out, scratch, task});
    });
    return {};
  }

 private:
  FusedPlan plan_;
  PrepareArguments arguments_;
};

}  // namespace

Refusal CpuFusedKernel::refuse(const Problem& problem, const DeviceProperties& device) const {
  VOLUP_REFUSE_IF(static_cast<int>(problem.epilogue.kind) >= kEpilogueCount, "unknown epilogue ",
                  static_cast<int>(problem.epilogue.kind));
  VOLUP_REFUSE_IF(device.type != DeviceType::kCpu, "needs a CPU, got ", name_of(device.type));
  return refuse_fused(problem);
}

std::string CpuFusedKernel::choose(const Problem& problem, const DeviceProperties& device) const {
  const auto plan = plan_fused(problem, device, kNoLimit);
  if (!plan.ok()) return plan.status().text();
  return cat(fused_target(device.isa).name, ", block ", plan->block_channels, " channels x ",
             plan->vectors * plan->lanes, " columns, tile ", plan->tile, ", band ", plan->band,
             plan->stream ? ", streaming stores" : "");
}

Result<size_t> CpuFusedKernel::workspace_bytes(const Problem& problem,
                                               const DeviceProperties& device, size_t limit) const {
  VOLUP_ASSIGN_OR_RETURN(const FusedPlan plan, plan_fused(problem, device, limit));
  return static_cast<size_t>(plan.worker_floats) * sizeof(float) *
         static_cast<size_t>(device.threads);
}

// The order of steps is the model's; the blocks depend on the vectors that a row fills.
std::string CpuFusedKernel::pack_key(const Problem& problem, const DeviceProperties& device) const {
  const auto plan = plan_fused(problem, device, kNoLimit);
  return plan.ok() ? cat(plan->pairs ? "pairs, " : "", "blocks of ", plan->block_channels)
                   : std::string();
}

Result<std::vector<std::byte>> CpuFusedKernel::pack(const Model& model, const Problem& problem,
                                                    const DeviceProperties& device) const {
  VOLUP_ASSIGN_OR_RETURN(const FusedPlan plan, plan_fused(problem, device, kNoLimit));
  const std::vector<float> packed = pack_fused(plan, model.weight(), model.bias());
  std::vector<std::byte> bytes(packed.size() * sizeof(float));
  std::memcpy(bytes.data(), packed.data(), bytes.size());
  return bytes;
}

Result<std::unique_ptr<Launch>> CpuFusedKernel::prepare(const Problem& problem,
                                                        const DeviceProperties& device,
                                                        const PrepareArguments& arguments) const {
  VOLUP_ASSIGN_OR_RETURN(FusedPlan plan, plan_fused(problem, device, arguments.workspace_bytes));
  return std::unique_ptr<Launch>(std::make_unique<FusedLaunch>(std::move(plan), arguments));
}

const Kernel& cpu_fused_kernel() {
  static const CpuFusedKernel kernel;
  return kernel;
}

}  // namespace volup
