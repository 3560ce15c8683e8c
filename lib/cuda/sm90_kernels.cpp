// SPDX-License-Identifier: Apache-2.0
//
// "cuda/sm90" and "cuda/sm90-wide" as the kernel list sees them. Planning is in sm90_plan.cpp, the
// kernel in sm90_kernel.cuh.
#include "cuda/sm90_kernels.h"

#include <cstdint>
#include <optional>

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
          instance.io == problem.io && instance.channels == plan.channels &&
          instance.squares == plan.squares) {
        return &instance;
      }
    }
  }
  return nullptr;
}

// A kernel with its parameters but for the pointers.
struct Prepared {
  Parameters parameters;
  const void* kernel;
  int blocks, threads;
  size_t shared_bytes;
};

class Sm90Launch final : public Launch {
 public:
  Sm90Launch(const Prepared& narrow, const std::optional<Prepared>& wide, size_t element)
      : narrow_(narrow), wide_(wide), element_(element) {}

  // Outputs have the same bits with either width of tiles: it is chosen by what bulk copies want of
  // the pointers.
  Status run(const RunArguments& arguments) const override {
    if (wide_) {
      Parameters p = with_pointers(*wide_, arguments);
      if (p.paired && p.bulk && aligned(p.add, 16) &&
          (p.add == nullptr || sm90::encode_add_maps(p, static_cast<int>(element_)))) {
        return launch(*wide_, p, arguments.stream);
      }
    }
    return launch(narrow_, with_pointers(narrow_, arguments), arguments.stream);
  }

 private:
  static bool aligned(const void* at, size_t bytes) {
    return reinterpret_cast<uintptr_t>(at) % bytes == 0;
  }

  Parameters with_pointers(const Prepared& prepared, const RunArguments& arguments) const {
    Parameters p = prepared.parameters;
    p.x = arguments.x;
    p.add = arguments.add;
    p.out = arguments.out;
    p.paired = p.paired && aligned(p.out, 2 * element_) && aligned(p.add, 2 * element_);
    p.bulk = p.bulk && aligned(p.x, 16) &&
             sm90::encode_x_map(p, p.x, static_cast<int>(element_), &p.x_map);
    p.whole_words = element_ == 4 || (aligned(p.x, 2 * element_) && p.even_count);
    return p;
  }

  static Status launch(const Prepared& prepared, Parameters p, void* stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(prepared.blocks));
    config.blockDim = dim3(static_cast<unsigned>(prepared.threads));
    config.dynamicSmemBytes = prepared.shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    void* argument[] = {&p};
    return cuda_status(cudaLaunchKernelExC(&config, prepared.kernel, argument),
                       "launch of cuda/sm90");
  }

  const Prepared narrow_;
  const std::optional<Prepared> wide_;
  const size_t element_;
};

// Wide: with tiles of two squares.
class Sm90Kernel final : public Kernel {
 public:
  explicit Sm90Kernel(bool wide) : wide_(wide) {}

  std::string_view name() const override { return wide_ ? kWideName : kName; }
  DeviceType device() const override { return DeviceType::kCuda; }

  Refusal refuse(const Problem& problem, const DeviceProperties& device) const override {
    return wide_ ? sm90::refuse_wide(problem, device) : sm90::refuse(problem, device);
  }

  std::string_view defer_to(const Problem& problem, const DeviceProperties& device) const override {
    // What whole lines of memory gain is lost to the rounding up of few tiles to warpgroups.
    constexpr int64_t kFewTiles = 8;
    const bool few = wide_ && sm90::tiles_of(sm90::make_plan(problem, 2, device), problem, device) <
                                  kFewTiles * device.multiprocessors;
    return few ? kName : std::string_view();
  }

  std::string choose(const Problem& problem, const DeviceProperties& device) const override {
    const Plan plan = sm90::make_plan(problem, squares(), device);
    static constexpr const char* kEngines[] = {"bf16 x1", "fp16 x1", "bf16 x3", "bf16 x6"};
    int resident = 0;
    for (const sm90::Class& c : plan.classes) resident += c.resident;
    int blocks = 0;
    sm90::make_parameters(plan, problem, device, &blocks);
    return cat("wgmma ", kEngines[static_cast<int>(plan.engine)], ", tile ",
               sm90::kRows * plan.squares, "x", plan.channels, "x2, ", plan.classes.size(),
               " classes, ", resident, " resident, ", blocks, " blocks");
  }

  std::string pack_key(const Problem& problem, const DeviceProperties& device) const override {
    return cat(name_of(problem.precision), " ", name_of(problem.io), " ",
               device.shared_memory_bytes);
  }

  Result<std::vector<std::byte>> pack(const Model& model, const Problem& problem,
                                      const DeviceProperties& device) const override {
    return sm90::pack(sm90::make_plan(problem, squares(), device), model);
  }

  Result<std::unique_ptr<Launch>> prepare(const Problem& problem, const DeviceProperties& device,
                                          const PrepareArguments& arguments) const override {
    const auto* packed = static_cast<const unsigned char*>(arguments.packed);
    VOLUP_ASSIGN_OR_RETURN(const Prepared narrow, prepare_plan(problem, 1, device, packed));
    std::optional<Prepared> wide;
    if (wide_) {
      VOLUP_ASSIGN_OR_RETURN(wide, prepare_plan(problem, 2, device, packed));
    }
    return std::unique_ptr<Launch>(
        std::make_unique<Sm90Launch>(narrow, wide, element_size(problem.io)));
  }

 private:
  int squares() const { return wide_ ? 2 : 1; }

  static Result<Prepared> prepare_plan(const Problem& problem, int squares,
                                       const DeviceProperties& device,
                                       const unsigned char* packed) {
    const Plan plan = sm90::make_plan(problem, squares, device);
    const Instance* instance = find_instance(plan, problem);
    if (instance == nullptr) {
      return unsupported("cuda/sm90: no instance for '", print(problem), "'");
    }
    Prepared prepared = {{}, instance->kernel, 0, instance->threads, plan.shared_bytes};
    prepared.parameters = sm90::make_parameters(plan, problem, device, &prepared.blocks);
    prepared.parameters.bias = reinterpret_cast<const float*>(packed + plan.bias_at());
    prepared.parameters.weights = packed + plan.weights_at();
    VOLUP_RETURN_IF_CUDA_ERROR(
        cudaFuncSetAttribute(instance->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(plan.shared_bytes)),
        "shared memory of cuda/sm90");
    return prepared;
  }

  static constexpr std::string_view kName = "cuda/sm90", kWideName = "cuda/sm90-wide";
  const bool wide_;
};

}  // namespace

const Kernel& cuda_sm90_kernel() {
  static const Sm90Kernel kernel(false);
  return kernel;
}

const Kernel& cuda_sm90_wide_kernel() {
  static const Sm90Kernel kernel(true);
  return kernel;
}

}  // namespace volup
