// SPDX-License-Identifier: Apache-2.0
//
// "cuda/sm90" as the kernel list sees it. Planning is in sm90_plan.cpp, the kernel in
// sm90_kernel.cuh.
#include "cuda/sm90_kernels.h"

#include <cstdint>

#include "cuda/cuda_error.h"
#include "cuda/sm90_launch.h"
#include "cuda/sm90_plan.h"
#include "cuda/sm90_tensor_map.h"

namespace volup {

namespace {

using sm90::Instance;
using sm90::Parameters;
using sm90::Plan;

const Instance* find_instance(const Plan& plan, const Problem& problem) {
  for (const auto instances :
       {sm90::fp32_instances(), sm90::tf32_instances(), sm90::bits16_instances()}) {
    for (const Instance& instance : instances) {
      if (instance.engine == plan.engine && instance.kind == problem.epilogue.kind &&
          instance.io == problem.io && instance.channels == plan.channels) {
        return &instance;
      }
    }
  }
  return nullptr;
}

class Sm90Launch final : public Launch {
 public:
  Sm90Launch(const Parameters& parameters, const void* kernel, int blocks, size_t shared_bytes,
             size_t element)
      : parameters_(parameters),
        kernel_(kernel),
        blocks_(blocks),
        shared_bytes_(shared_bytes),
        element_(element) {}

  Status run(const RunArguments& arguments) const override {
    Parameters p = parameters_;
    p.x = arguments.x;
    p.add = arguments.add;
    p.out = arguments.out;
    const auto aligned = [&](const void* at) {
      return reinterpret_cast<uintptr_t>(at) % (2 * element_) == 0;
    };
    p.paired = p.paired && aligned(p.out) && aligned(p.add);
    p.bulk = p.bulk && reinterpret_cast<uintptr_t>(p.x) % 16 == 0 &&
             sm90::encode_x_map(p, p.x, static_cast<int>(element_), &p.x_map);
    p.whole_words = element_ == 4 || (aligned(p.x) && p.even_count);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks_));
    config.blockDim = dim3(sm90::kThreads);
    config.dynamicSmemBytes = shared_bytes_;
    config.stream = static_cast<cudaStream_t>(arguments.stream);
    void* argument[] = {&p};
    return cuda_status(cudaLaunchKernelExC(&config, kernel_, argument), "launch of cuda/sm90");
  }

 private:
  const Parameters parameters_;
  const void* const kernel_;
  const int blocks_;
  const size_t shared_bytes_;
  const size_t element_;
};

class Sm90Kernel final : public Kernel {
 public:
  std::string_view name() const override { return "cuda/sm90"; }
  DeviceType device() const override { return DeviceType::kCuda; }

  Refusal refuse(const Problem& problem, const DeviceProperties& device) const override {
    return sm90::refuse(problem, device);
  }

  std::string choose(const Problem& problem, const DeviceProperties& device) const override {
    const Plan plan = sm90::make_plan(problem, device);
    static constexpr const char* kEngines[] = {"bf16 x1", "fp16 x1", "bf16 x3", "bf16 x6"};
    int resident = 0;
    for (const sm90::Class& c : plan.classes) resident += c.resident;
    int blocks = 0;
    sm90::make_parameters(plan, problem, device, &blocks);
    return cat("wgmma ", kEngines[static_cast<int>(plan.engine)], ", tile 64x", plan.channels,
               "x2, ", plan.classes.size(), " classes, ", resident, " resident, ", blocks,
               " blocks");
  }

  std::string pack_key(const Problem& problem, const DeviceProperties& device) const override {
    return cat(name_of(problem.precision), " ", name_of(problem.io), " ",
               device.shared_memory_bytes);
  }

  Result<std::vector<std::byte>> pack(const Model& model, const Problem& problem,
                                      const DeviceProperties& device) const override {
    return sm90::pack(sm90::make_plan(problem, device), model);
  }

  Result<std::unique_ptr<Launch>> prepare(const Problem& problem, const DeviceProperties& device,
                                          const PrepareArguments& arguments) const override {
    const Plan plan = sm90::make_plan(problem, device);
    const Instance* instance = find_instance(plan, problem);
    if (instance == nullptr) {
      return unsupported("cuda/sm90: no instance for '", print(problem), "'");
    }
    int blocks = 0;
    Parameters p = sm90::make_parameters(plan, problem, device, &blocks);
    const auto* packed = static_cast<const unsigned char*>(arguments.packed);
    p.bias = reinterpret_cast<const float*>(packed + plan.bias_at());
    p.weights = packed + plan.weights_at();
    VOLUP_RETURN_IF_CUDA_ERROR(
        cudaFuncSetAttribute(instance->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(plan.shared_bytes)),
        "shared memory of cuda/sm90");
    return std::unique_ptr<Launch>(std::make_unique<Sm90Launch>(
        p, instance->kernel, blocks, plan.shared_bytes, element_size(problem.io)));
  }
};

}  // namespace

const Kernel& cuda_sm90_kernel() {
  static const Sm90Kernel kernel;
  return kernel;
}

}  // namespace volup
