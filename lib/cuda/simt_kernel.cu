// SPDX-License-Identifier: Apache-2.0
//
// Host side of "cuda/simt": what it accepts, how a problem becomes SimtArguments, packing, launch.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "cuda/cuda_error.h"
#include "cuda/cuda_kernels.h"
#include "cuda/simt_kernel.cuh"
#include "cuda/simt_kernel.h"

namespace volup {
namespace {

using KernelFunction = void (*)(SimtArguments);

constexpr int64_t kAxisLimit = int64_t{1} << 31;  // two factors below it multiply within int64
constexpr int64_t kGridLimit = (int64_t{1} << 31) - 1;

int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Narrow tiles for few channels: padding costs as much as channels do.
int tile_of(const ConvTranspose3d& geometry) { return geometry.out_per_group() <= 8 ? 4 : 16; }

template <EpilogueKind kKind, typename T>
KernelFunction function_for_tile(int tile) {
  return tile == 4 ? simt_kernel<kKind, T, 4> : simt_kernel<kKind, T, 16>;
}

template <EpilogueKind kKind>
KernelFunction function_for_io(DType io, int tile) {
  switch (io) {
    case DType::kFp16:
      return function_for_tile<kKind, __half>(tile);
    case DType::kBf16:
      return function_for_tile<kKind, __nv_bfloat16>(tile);
    case DType::kFp32:
      break;
  }
  return function_for_tile<kKind, float>(tile);
}

KernelFunction function_for(const Problem& problem) {
  const int tile = tile_of(problem.geometry);
  switch (problem.epilogue.kind) {
    case EpilogueKind::kLogsumexpSwishClamp:
      return function_for_io<EpilogueKind::kLogsumexpSwishClamp>(problem.io, tile);
    case EpilogueKind::kSoftmaxSigmoid:
      return function_for_io<EpilogueKind::kSoftmaxSigmoid>(problem.io, tile);
    case EpilogueKind::kAddHardswish:
      return function_for_io<EpilogueKind::kAddHardswish>(problem.io, tile);
    case EpilogueKind::kIdentity:
      break;
  }
  return function_for_io<EpilogueKind::kIdentity>(problem.io, tile);
}

// x with a * x = 1 modulo m, for coprime a and m; 0 for m = 1.
int64_t inverse_modulo(int64_t a, int64_t m) {
  int64_t r0 = m;
  int64_t r1 = a % m;
  int64_t x0 = 0;
  int64_t x1 = 1;
  while (r1 != 0) {
    const int64_t quotient = r0 / r1;
    r0 = std::exchange(r1, r0 - quotient * r1);
    x0 = std::exchange(x1, x0 - quotient * x1);
  }
  return m == 1 ? 0 : (x0 % m + m) % m;
}

SimtAxis make_axis(const Problem& problem, size_t index, int64_t span) {
  const ConvTranspose3d& g = problem.geometry;
  const int64_t stride = g.stride[index];
  const int64_t out = problem.conv_output[2 + index];
  const int64_t common = std::gcd(stride, g.dilation[index]);
  SimtAxis axis;
  axis.in = problem.input[2 + index];
  axis.kernel = static_cast<uint32_t>(g.kernel[index]);
  axis.padding = g.padding_begin[index];
  axis.dilation = g.dilation[index];
  axis.long_phases = out % stride;
  axis.short_count = out / stride;
  axis.span = span;
  const int64_t long_units = divide_up(axis.short_count + 1, span);
  const int64_t short_units = divide_up(axis.short_count, span);
  axis.long_units = axis.long_phases * long_units;
  axis.units = axis.long_units + (stride - axis.long_phases) * short_units;
  axis.by_long = Divider(long_units);
  axis.by_short = Divider(std::max<int64_t>(short_units, 1));
  axis.tap_step = static_cast<uint32_t>(stride / common);
  axis.delta_step = g.dilation[index] / common;
  axis.inverse = inverse_modulo(axis.delta_step, axis.tap_step);
  axis.by_stride = Divider(stride);
  axis.by_common = Divider(common);
  axis.by_tap_step = Divider(axis.tap_step);
  return axis;
}

// Sizes and the walk, with a thread's positions along span_axis (-1: the batch).
SimtArguments walk_along(const Problem& problem, int span_axis) {
  SimtArguments a;
  a.span_axis = span_axis;
  a.batch = problem.input[0];
  a.batch_span = span_axis < 0 ? kSimtSpan : 1;
  a.items = divide_up(a.batch, a.batch_span);
  for (int index = 0; index < 3; ++index) {
    const auto i = static_cast<size_t>(index);
    a.axis[index] = make_axis(problem, i, span_axis == index ? kSimtSpan : 1);
    a.by_units[index] = Divider(a.axis[index].units);
    a.items *= a.axis[index].units;
  }
  const Shape5& in = problem.input;
  const Shape5& out = problem.output;
  a.in_plane = in[2] * in[3] * in[4];
  a.in_sample = in[1] * a.in_plane;
  a.out_row_h = out[4];
  a.out_row_d = out[3] * out[4];
  a.out_plane = out[2] * a.out_row_d;
  a.out_sample = out[1] * a.out_plane;
  if (span_axis < 0) {
    a.in_step = a.in_sample;
    a.out_step = a.out_sample;
  } else if (span_axis == 0) {
    a.in_step = in[3] * in[4];
    a.out_step = problem.geometry.stride[0] * a.out_row_d;
  } else {
    a.in_step = in[4];
    a.out_step = problem.geometry.stride[1] * a.out_row_h;
  }
  return a;
}

// The walk that wastes least; every one gives the same bits.
SimtArguments make_walk(const Problem& problem) {
  SimtArguments best = walk_along(problem, -1);
  for (const int span_axis : {0, 1}) {
    SimtArguments other = walk_along(problem, span_axis);
    if (other.items < best.items) best = other;
  }
  return best;
}

SimtArguments make_arguments(const Problem& problem) {
  const ConvTranspose3d& g = problem.geometry;
  SimtArguments a = make_walk(problem);
  a.epilogue = problem.epilogue;
  a.in_per_group = g.in_per_group();
  a.out_per_group = g.out_per_group();
  a.taps = g.taps();
  const int64_t tiles_per_group = divide_up(a.out_per_group, tile_of(g));
  a.tiles = g.groups * tiles_per_group;
  a.by_tiles_per_group = Divider(tiles_per_group);

  const int64_t passes = divide_up(a.tiles, kSimtWarps);
  a.channel_warps = static_cast<int>(divide_up(a.tiles, passes));
  a.position_warps = kSimtWarps / a.channel_warps;
  const int64_t grid_passes = couples_channels(problem.epilogue.kind) ? 1 : passes;
  a.block_passes = passes / grid_passes;
  a.by_grid_passes = Divider(grid_passes);
  a.blocks = divide_up(a.items, int64_t{a.position_warps} * 32) * grid_passes;
  return a;
}

// Floats of the bias part; the weights behind it stay aligned for vector loads.
int64_t bias_floats(const SimtArguments& a, int tile) { return a.tiles * tile; }

class SimtLaunch final : public Launch {
 public:
  SimtLaunch(const Problem& problem, const float* packed)
      : function_(function_for(problem)), arguments_(make_arguments(problem)) {
    arguments_.bias = packed;
    arguments_.weight = packed + bias_floats(arguments_, tile_of(problem.geometry));
  }

  // Kernels are loaded on first use, which a stream that is being captured does not allow.
  Status load() const {
    cudaFuncAttributes attributes;
    return cuda_status(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(function_)),
                       "cuda/simt, loading");
  }

  Status run(const RunArguments& run) const override {
    SimtArguments arguments = arguments_;
    arguments.x = run.x;
    arguments.add = run.add;
    arguments.out = run.out;
    void* parameters[] = {&arguments};
    const dim3 grid(static_cast<unsigned>(std::min(arguments.blocks, kGridLimit)));
    const dim3 block(
        static_cast<unsigned>(arguments.channel_warps * arguments.position_warps * 32));
    return cuda_status(cudaLaunchKernel(reinterpret_cast<const void*>(function_), grid, block,
                                        parameters, 0, static_cast<cudaStream_t>(run.stream)),
                       "cuda/simt, launch");
  }

 private:
  KernelFunction function_;
  SimtArguments arguments_;
};

class SimtKernel final : public Kernel {
 public:
  std::string_view name() const override { return "cuda/simt"; }
  DeviceType device() const override { return DeviceType::kCuda; }

  Refusal refuse(const Problem& problem, const DeviceProperties& device) const override {
    const ConvTranspose3d& g = problem.geometry;
    const int kind = static_cast<int>(problem.epilogue.kind);
    VOLUP_REFUSE_IF(kind < 0 || kind >= kEpilogueCount, "unknown epilogue ", kind);
    VOLUP_REFUSE_IF(static_cast<int>(problem.io) > static_cast<int>(DType::kBf16),
                    "unknown I/O dtype ", static_cast<int>(problem.io));
    VOLUP_REFUSE_IF(device.type != DeviceType::kCuda, "needs a CUDA device, got ",
                    name_of(device.type));
    VOLUP_REFUSE_IF(device.compute_capability < 80, "needs compute capability 8.0 or more, got ",
                    device.compute_capability / 10, ".", device.compute_capability % 10);
    VOLUP_REFUSE_IF(std::ranges::max(g.stride) >= kAxisLimit, "needs strides below 2^31, got ",
                    g.stride);
    VOLUP_REFUSE_IF(std::ranges::max(g.kernel) >= kAxisLimit, "needs kernels below 2^31, got ",
                    g.kernel);
    return {};
  }

  std::string choose(const Problem& problem, const DeviceProperties&) const override {
    static constexpr const char* kAlong[] = {"N", "D", "H"};
    const SimtArguments a = make_arguments(problem);
    return cat("tile ", tile_of(problem.geometry), " channels x ", kSimtSpan, " along ",
               kAlong[a.span_axis + 1], ", warps ", a.channel_warps, "x", a.position_warps);
  }

  Result<std::vector<std::byte>> pack(const Model& model, const Problem& problem,
                                      const DeviceProperties&) const override {
    const ConvTranspose3d& g = problem.geometry;
    const int tile = tile_of(g);
    const SimtArguments a = make_arguments(problem);
    const int64_t tiles_per_group = a.tiles / g.groups;
    const int64_t weight_at = bias_floats(a, tile);
    std::vector<float> packed(
        static_cast<size_t>(weight_at + a.tiles * a.taps * a.in_per_group * tile));
    for (int64_t co = 0; co < g.out_channels; ++co) {
      const int64_t group = co / a.out_per_group;
      const int64_t in_group = co % a.out_per_group;
      const int64_t tile_index = group * tiles_per_group + in_group / tile;
      const int64_t lane = in_group % tile;
      if (model.bias() != nullptr) {
        packed[static_cast<size_t>(tile_index * tile + lane)] = model.bias()[co];
      }
      for (int64_t ci = 0; ci < a.in_per_group; ++ci) {
        const float* const from =
            model.weight() + ((group * a.in_per_group + ci) * a.out_per_group + in_group) * a.taps;
        for (int64_t tap = 0; tap < a.taps; ++tap) {
          const int64_t row = (tile_index * a.taps + tap) * a.in_per_group + ci;
          packed[static_cast<size_t>(weight_at + row * tile + lane)] = from[tap];
        }
      }
    }
    std::vector<std::byte> bytes(packed.size() * sizeof(float));
    std::memcpy(bytes.data(), packed.data(), bytes.size());
    return bytes;
  }

  Result<std::unique_ptr<Launch>> prepare(const Problem& problem, const DeviceProperties&,
                                          const PrepareArguments& arguments) const override {
    auto launch =
        std::make_unique<SimtLaunch>(problem, static_cast<const float*>(arguments.packed));
    VOLUP_RETURN_IF_ERROR(launch->load());
    return std::unique_ptr<Launch>(std::move(launch));
  }
};

}  // namespace

const Kernel& cuda_simt_kernel() {
  static const SimtKernel kKernel;
  return kKernel;
}

}  // namespace volup
