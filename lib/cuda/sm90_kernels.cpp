// SPDX-License-Identifier: Apache-2.0
//
// "cuda/sm90" and "cuda/sm90-wide" as the kernel list sees them. Planning is in sm90_plan.cpp, the
// kernel in sm90_kernel.cuh.
#include "cuda/sm90_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/cuda_error.h"
#include "cuda/dependent_launch.h"
#include "cuda/sm90_launch.h"
#include "cuda/sm90_plan.h"
#include "cuda/sm90_tensor_map.h"

namespace volup {

namespace {

using sm90::Instance;
using sm90::Parameters;
using sm90::Plan;
using sm90::Range;

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

// The kernels of some samples. unscaled: for those that the others leave, where they scale.
struct Kernels {
  Prepared narrow;
  std::optional<Prepared> wide, unscaled;
};

// A batch in parts that follow each other, as many samples each as the workspace has room for.
struct Part {
  Kernels kernels;
  int64_t samples, times;
};

// Bytes of a sample.
struct SampleSizes {
  int64_t element, x, out;
};

class Sm90Launch final : public Launch {
 public:
  Sm90Launch(std::vector<Part> parts, const SampleSizes& sizes)
      : parts_(std::move(parts)), sizes_(sizes) {}

  Status run(const RunArguments& arguments) const override {
    RunArguments next = arguments;
    for (const Part& part : parts_) {
      for (int64_t i = 0; i < part.times; ++i) {
        VOLUP_RETURN_IF_ERROR(run_samples(part.kernels, next));
        next.x = past(next.x, part.samples * sizes_.x);
        next.add = past(next.add, part.samples * sizes_.out);
        next.out = const_cast<void*>(past(next.out, part.samples * sizes_.out));
      }
    }
    return {};
  }

 private:
  static const void* past(const void* at, int64_t bytes) {
    return at == nullptr ? nullptr : static_cast<const std::byte*>(at) + bytes;
  }

  Status run_samples(const Kernels& kernels, const RunArguments& arguments) const {
    if (!kernels.unscaled) return run_main(kernels, arguments);
    VOLUP_RETURN_IF_ERROR(measure_ranges(kernels.unscaled->parameters, arguments));
    VOLUP_RETURN_IF_ERROR(run_main(kernels, arguments));
    return launch(*kernels.unscaled, with_pointers(*kernels.unscaled, arguments), arguments.stream);
  }

  // Outputs have the same bits with either width of tiles: it is chosen by what bulk copies want of
  // the pointers.
  Status run_main(const Kernels& kernels, const RunArguments& arguments) const {
    if (kernels.wide) {
      Parameters p = with_pointers(*kernels.wide, arguments);
      const auto element = static_cast<int>(sizes_.element);
      p.out_boxes = p.out_boxes && aligned(p.out, 16) && sm90::encode_output_maps(p, element);
      if (p.paired && p.bulk && aligned(p.add, 16) &&
          (p.add == nullptr || sm90::encode_output_maps(p, element))) {
        return launch(*kernels.wide, p, arguments.stream);
      }
    }
    return launch(kernels.narrow, with_pointers(kernels.narrow, arguments), arguments.stream);
  }

  static Status measure_ranges(const Parameters& p, const RunArguments& arguments) {
    const void* x = arguments.x;
    int64_t sample = p.ci * p.input_plane;
    int64_t length = sm90::piece_length(sample, p.pieces);
    int32_t pieces = p.pieces;
    Range* ranges = p.ranges;
    uint32_t* left_some = p.left_some;
    void* argument[] = {&x, &sample, &length, &pieces, &ranges, &left_some};
    const sm90::RangeKernel kernel = sm90::range_kernel();
    return cuda_status(
        launch_dependent(kernel.kernel, static_cast<unsigned>(int64_t{p.n} * pieces),
                         static_cast<unsigned>(kernel.threads), 0, argument, arguments.stream),
        "launch of cuda/sm90's measure of ranges");
  }

  static bool aligned(const void* at, int64_t bytes) {
    return reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(bytes) == 0;
  }

  Parameters with_pointers(const Prepared& prepared, const RunArguments& arguments) const {
    const int64_t element = sizes_.element;
    Parameters p = prepared.parameters;
    p.x = arguments.x;
    p.add = arguments.add;
    p.out = arguments.out;
    p.paired = p.paired && aligned(p.out, 2 * element) && aligned(p.add, 2 * element);
    p.bulk = p.bulk && aligned(p.x, 16) &&
             sm90::encode_x_map(p, p.x, static_cast<int>(element), &p.x_map);
    p.whole_words = element == 4 || (aligned(p.x, 2 * element) && p.even_count);
    return p;
  }

  static Status launch(const Prepared& prepared, Parameters p, void* stream) {
    void* argument[] = {&p};
    return cuda_status(launch_dependent(prepared.kernel, static_cast<unsigned>(prepared.blocks),
                                        static_cast<unsigned>(prepared.threads),
                                        prepared.shared_bytes, argument, stream),
                       "launch of cuda/sm90");
  }

  const std::vector<Part> parts_;
  const SampleSizes sizes_;
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
    if (!wide_) return {};
    // Tiles of one square spread over more multiprocessors; add in boxes is worth as much.
    const Plan plan = main_plan(problem, device);
    const int64_t few = plan.add_slots ? device.multiprocessors / 2 : device.multiprocessors;
    return sm90::tiles_of(plan, problem, device) < few ? kName : std::string_view();
  }

  std::string choose(const Problem& problem, const DeviceProperties& device) const override {
    const Plan plan = main_plan(problem, device);
    static constexpr const char* kEngines[] = {"bf16 x1", "fp16 x1", "bf16 x3", "bf16 x6",
                                               "fp16 x3 or bf16 x6"};
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

  // Where engines share samples: whether some were left, and ranges.
  Result<size_t> workspace_bytes(const Problem& problem, const DeviceProperties& device,
                                 size_t limit) const override {
    if (!shares(problem, device)) return size_t{0};
    const size_t one = sample_bytes(problem);
    if (limit < kFlagBytes + one) {
      return Status(VOLUP_STATUS_OUT_OF_MEMORY,
                    cat("workspace limit: got ", limit, " bytes, need ", kFlagBytes + one,
                        " for one sample (", name(), ")"));
    }
    const auto batch = static_cast<size_t>(problem.input[0]);
    return kFlagBytes + std::min(batch, (limit - kFlagBytes) / one) * one;
  }

  // Of the engine that serves the problem; behind it, of the one that shares samples with it.
  Result<std::vector<std::byte>> pack(const Model& model, const Problem& problem,
                                      const DeviceProperties& device) const override {
    const Plan main = main_plan(problem, device);
    VOLUP_ASSIGN_OR_RETURN(std::vector<std::byte> bytes, sm90::pack(main, model));
    if (main.engine == sm90::kScaledEngine) {
      const Plan behind = sm90::make_plan(problem, sm90::kUnscaledEngine, 1, device);
      VOLUP_ASSIGN_OR_RETURN(const std::vector<std::byte> unscaled, sm90::pack(behind, model));
      bytes.insert(bytes.end(), unscaled.begin(), unscaled.end());
    }
    return bytes;
  }

  Result<std::unique_ptr<Launch>> prepare(const Problem& problem, const DeviceProperties& device,
                                          const PrepareArguments& arguments) const override {
    const int64_t batch = problem.input[0];
    const int64_t samples =
        shares(problem, device)
            ? std::min(batch, static_cast<int64_t>((arguments.workspace_bytes - kFlagBytes) /
                                                   sample_bytes(problem)))
            : batch;
    std::vector<Part> parts;
    for (const auto& [size, times] :
         {std::pair(samples, batch / samples), std::pair(batch % samples, int64_t{1})}) {
      if (size == 0) continue;
      Problem part = problem;
      part.input[0] = part.conv_output[0] = part.output[0] = size;
      VOLUP_ASSIGN_OR_RETURN(const Kernels kernels, prepare_samples(part, device, arguments));
      parts.push_back({kernels, size, times});
    }
    const auto element = static_cast<int64_t>(element_size(problem.io));
    const auto sample = [element](const Shape5& shape) {
      return element * shape[1] * shape[2] * shape[3] * shape[4];
    };
    const SampleSizes sizes = {element, sample(problem.input), sample(problem.output)};
    return std::unique_ptr<Launch>(std::make_unique<Sm90Launch>(std::move(parts), sizes));
  }

 private:
  static constexpr size_t kFlagBytes = 256;
  static size_t sample_bytes(const Problem& problem) {
    return static_cast<size_t>(sm90::pieces_of(problem)) * sizeof(Range);
  }

  Result<Kernels> prepare_samples(const Problem& problem, const DeviceProperties& device,
                                  const PrepareArguments& arguments) const {
    const auto* packed = static_cast<const unsigned char*>(arguments.packed);
    const Plan main = main_plan(problem, device);
    Kernels kernels;
    VOLUP_ASSIGN_OR_RETURN(kernels.narrow, prepare_plan(problem, main.engine, 1, device, packed));
    if (wide_) {
      VOLUP_ASSIGN_OR_RETURN(kernels.wide, prepare_plan(problem, main.engine, 2, device, packed));
    }
    if (main.engine != sm90::kScaledEngine) return kernels;
    VOLUP_ASSIGN_OR_RETURN(kernels.unscaled, prepare_plan(problem, sm90::kUnscaledEngine, 1, device,
                                                          packed + main.packed_bytes()));
    auto* workspace = static_cast<std::byte*>(arguments.workspace);
    for (Prepared* prepared :
         {&kernels.narrow, kernels.wide ? &*kernels.wide : nullptr, &*kernels.unscaled}) {
      if (prepared == nullptr) continue;
      prepared->parameters.left_some = reinterpret_cast<uint32_t*>(workspace);
      prepared->parameters.ranges = reinterpret_cast<Range*>(workspace + kFlagBytes);
    }
    return kernels;
  }

  Plan main_plan(const Problem& problem, const DeviceProperties& device) const {
    return sm90::make_plan(problem, sm90::engine_of(problem, device), wide_ ? 2 : 1, device);
  }
  static bool shares(const Problem& problem, const DeviceProperties& device) {
    return sm90::engine_of(problem, device) == sm90::kScaledEngine;
  }

  static Result<Prepared> prepare_plan(const Problem& problem, sm90::Engine engine, int squares,
                                       const DeviceProperties& device,
                                       const unsigned char* packed) {
    const Plan plan = sm90::make_plan(problem, engine, squares, device);
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
