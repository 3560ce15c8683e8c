// SPDX-License-Identifier: Apache-2.0
//
// Host side of cuda/mma: what it takes, its tables from the geometry, packing, launch.
#include <algorithm>
#include <limits>

#include "cuda/mma_gather.cuh"
#include "cuda/mma_kernels.h"
#include "cuda/mma_launch.h"

namespace volup {
namespace mma_gather {
namespace {

constexpr std::string_view kName = "cuda/mma";
constexpr int64_t kMaxOffset = 1 << 20;
constexpr int64_t kMaxElements = int64_t{1} << 30;  // of a channel; phases and halo fit an int
constexpr int64_t kMaxCoupled = 128;                // channels that a softmax or logsumexp takes
// The tensor core cuts instead of rounding each sum; more steps of 8 products than this in a row
// would show against a chain of rounded products.
constexpr int64_t kMaxSteps = 48;

bool compensated(const Problem& problem) { return problem.precision == Precision::kFp32; }
// What a warp takes: 16 row_tiles positions by 8 tiles channels, all of them where the epilogue
// couples them.
struct Tile {
  int row_tiles, tiles;
  int positions() const { return 16 * row_tiles; }
  int channels() const { return 8 * tiles; }
};
Tile tile_of(const ConvTranspose3d& g, EpilogueKind kind) {
  if (g.out_channels <= 16) return {2, 2};
  if (couples_channels(kind) && g.out_channels > 64) return {1, 16};
  return {2, 8};
}
int64_t steps_of(const ConvTranspose3d& g) { return (g.in_channels + kDepth - 1) / kDepth; }
int64_t channel_blocks(const ConvTranspose3d& g, const Tile& tile) {
  return (g.out_channels + tile.channels() - 1) / tile.channels();
}

template <typename Io, bool kCompensated, EpilogueKind kKind>
const void* function_of(const Tile& tile) {
  if (tile.tiles == 2) {
    return reinterpret_cast<const void*>(mma_gather<Io, kCompensated, kKind, 2, 2>);
  }
  if constexpr (couples_channels(kKind)) {
    if (tile.tiles == 16) {
      return reinterpret_cast<const void*>(mma_gather<Io, kCompensated, kKind, 1, 16>);
    }
  }
  return reinterpret_cast<const void*>(mma_gather<Io, kCompensated, kKind, 2, 8>);
}

template <typename Io, bool kCompensated>
const void* function_of(const Problem& problem) {
  using enum EpilogueKind;
  const Tile tile = tile_of(problem.geometry, problem.epilogue.kind);
  switch (problem.epilogue.kind) {
    case kLogsumexpSwishClamp:
      return function_of<Io, kCompensated, kLogsumexpSwishClamp>(tile);
    case kSoftmaxSigmoid:
      return function_of<Io, kCompensated, kSoftmaxSigmoid>(tile);
    case kAddHardswish:
      return function_of<Io, kCompensated, kAddHardswish>(tile);
    case kIdentity:
      break;
  }
  return function_of<Io, kCompensated, kIdentity>(tile);
}

const void* device_function(const Problem& problem) {
  switch (problem.io) {
    case DType::kFp16:
      return function_of<__half, false>(problem);
    case DType::kBf16:
      return function_of<__nv_bfloat16, false>(problem);
    case DType::kFp32:
      break;
  }
  return compensated(problem) ? function_of<float, true>(problem)
                              : function_of<float, false>(problem);
}

// Everything but pointers. The problem passed refuse()'s first checks.
Parameters make_parameters(const Problem& problem) {
  const ConvTranspose3d& g = problem.geometry;
  Parameters p = {};
  p.in_channels = static_cast<int>(g.in_channels);
  p.steps = static_cast<int>(steps_of(g));
  const Tile tile = tile_of(g, problem.epilogue.kind);
  p.channel_blocks = static_cast<int>(channel_blocks(g, tile));
  p.taps = static_cast<int>(g.taps());
  int64_t positions = 1;
  for (int a = 0; a < 3; ++a) {
    Axis& axis = p.axis[a];
    axis.in = static_cast<int>(problem.input[2 + a]);
    axis.out = static_cast<int>(problem.conv_output[2 + a]);
    axis.stride = static_cast<int>(g.stride[a]);
    axis.base = (axis.out + axis.stride - 1) / axis.stride;
    positions *= axis.base;
    int taps = 0;
    for (const Phase& phase : phases(g, a)) {
      for (const Tap& tap : phase.taps) axis.offset[taps++] = static_cast<int>(tap.delta);
      axis.first_tap[phase.r + 1] = taps;
    }
  }
  const int64_t group = int64_t{kWarps} * tile.positions();
  p.groups_of_positions = static_cast<int>((positions + group - 1) / group);
  const int64_t plane = problem.conv_output[2] * problem.conv_output[3] * problem.conv_output[4];
  p.finish = mma::make_finish(problem.epilogue, g.out_channels, plane);
  return p;
}

// Saturates.
int64_t block_count(const Problem& problem, const Parameters& p) {
  const ConvTranspose3d& g = problem.geometry;
  int64_t blocks = p.groups_of_positions;
  for (const int64_t factor :
       {g.stride[0] * g.stride[1] * g.stride[2], int64_t{p.channel_blocks}, problem.input[0]}) {
    if (!checked_multiply(blocks, factor, &blocks)) return std::numeric_limits<int64_t>::max();
  }
  return blocks;
}

class GatherKernel final : public Kernel {
 public:
  std::string_view name() const override { return kName; }
  DeviceType device() const override { return DeviceType::kCuda; }

  Refusal refuse(const Problem& problem, const DeviceProperties& device) const override {
    const ConvTranspose3d& g = problem.geometry;
    VOLUP_REFUSE_IF(device.type != DeviceType::kCuda, "needs a CUDA device, got ",
                    name_of(device.type));
    VOLUP_REFUSE_IF(static_cast<int>(problem.epilogue.kind) >= kEpilogueCount, "unknown epilogue ",
                    static_cast<int>(problem.epilogue.kind));
    VOLUP_REFUSE_IF(device.compute_capability < 80, "needs compute capability 8.0, got ",
                    device.compute_capability / 10, ".", device.compute_capability % 10);
    VOLUP_REFUSE_IF(g.groups != 1, "groups: got ", g.groups, ", need 1");
    VOLUP_REFUSE_IF(!problem.weights.finite, "needs finite weights");
    VOLUP_REFUSE_IF(compensated(problem) && problem.io != DType::kFp32, "fp32 products of ",
                    name_of(problem.io),
                    " tensors: needs fp32 tensors or products of the tensors'"
                    " own precision");
    VOLUP_REFUSE_IF(couples_channels(problem.epilogue.kind) && g.out_channels > kMaxCoupled,
                    "output channels: got ", g.out_channels, ", need at most ", kMaxCoupled,
                    " for ", name_of(problem.epilogue.kind));
    int64_t most_taps = 1;
    for (int axis = 0; axis < 3; ++axis) {
      VOLUP_REFUSE_IF(g.stride[axis] > kMaxStride, "stride on ", "DHW"[axis], ": got ",
                      g.stride[axis], ", need at most ", kMaxStride);
      VOLUP_REFUSE_IF(g.kernel[axis] > kMaxTaps, "kernel on ", "DHW"[axis], ": got ",
                      g.kernel[axis], ", need at most ", kMaxTaps);
      size_t taps = 0;
      for (const Phase& phase : phases(g, axis)) {
        taps = std::max(taps, phase.taps.size());
        for (const Tap& tap : phase.taps) {
          VOLUP_REFUSE_IF(std::abs(tap.delta) > kMaxOffset, "padding on ", "DHW"[axis],
                          ": a tap reads ", tap.delta, " away, need at most ", kMaxOffset);
        }
      }
      most_taps *= static_cast<int64_t>(taps);
    }
    const int64_t steps = most_taps * steps_of(g);
    VOLUP_REFUSE_IF(compensated(problem) && steps > kMaxSteps, "products an output: got ",
                    steps * kDepth, ", need at most ", kMaxSteps * kDepth, " in fp32");
    for (const Shape5& shape : {problem.input, problem.conv_output}) {
      const int64_t elements = shape[2] * shape[3] * shape[4];
      VOLUP_REFUSE_IF(elements > kMaxElements, "D x H x W: got ", elements, ", need at most ",
                      kMaxElements);
    }
    const int64_t blocks = block_count(problem, make_parameters(problem));
    VOLUP_REFUSE_IF(blocks > std::numeric_limits<int>::max(),
                    "needs a grid of less than 2^31, got ", blocks);
    return {};
  }

  std::string choose(const Problem& problem, const DeviceProperties&) const override {
    const Tile tile = tile_of(problem.geometry, problem.epilogue.kind);
    return cat("tile ", tile.positions(), "x", tile.channels(), ", ", kWarps, " warps, ",
               compensated(problem) ? "3 TF32 products" : "1 TF32 product");
  }

  std::string pack_key(const Problem& problem, const DeviceProperties&) const override {
    return compensated(problem) ? "compensated" : "single";
  }

  // The bias, then the fragments.
  Result<std::vector<std::byte>> pack(const Model& model, const Problem& problem,
                                      const DeviceProperties&) const override {
    const ConvTranspose3d& g = model.geometry();
    const Tile tile = tile_of(g, model.epilogue().kind);
    const int tiles = tile.tiles;
    const int64_t blocks = channel_blocks(g, tile);
    const double scale = mma::logit_scale(model.epilogue());
    std::vector<float> values(static_cast<size_t>(blocks * tile.channels()),
                              couples_channels(model.epilogue().kind) ? mma::kNoChannel : 0.0f);
    for (int64_t co = 0; co < g.out_channels; ++co) {
      values[static_cast<size_t>(co)] =
          model.bias() == nullptr ? 0.0f : static_cast<float>(model.bias()[co] * scale);
    }
    const auto append = [&](const Tap& z, const Tap& y, const Tap& x, int64_t block) {
      for (int64_t i = 0; i < steps_of(g) * tiles * kLanes; ++i) {
        const int64_t lane = i % kLanes, step = i / kLanes / tiles;
        const int64_t co = (block * tiles + i / kLanes % tiles) * 8 + lane / 4;
        WeightFragment w = {};
        for (int half = 0; half < 2; ++half) {
          const int64_t ci = step * kDepth + 4 * half + lane % 4;
          if (ci >= g.in_channels || co >= g.out_channels) continue;
          const mma::SplitWeight s =
              mma::split(scale * mma::weight_at(model, ci, co, z.k, y.k, x.k));
          w.high[half] = s.high;
          if (compensated(problem)) w.low[half] = s.low;
        }
        for (const float value : {w.high[0], w.high[1], w.low[0], w.low[1]}) {
          values.push_back(value);
        }
      }
    };
    const auto all_z = phases(g, 0), all_y = phases(g, 1), all_x = phases(g, 2);
    for (int64_t block = 0; block < blocks; ++block) {
      for (const Phase& pz : all_z) {
        for (const Phase& py : all_y) {
          for (const Phase& px : all_x) {
            for (const Tap& z : pz.taps) {
              for (const Tap& y : py.taps) {
                for (const Tap& x : px.taps) append(z, y, x, block);
              }
            }
          }
        }
      }
    }
    return mma::bytes_of(values);
  }

  Result<std::unique_ptr<Launch>> prepare(const Problem& problem, const DeviceProperties&,
                                          const PrepareArguments& arguments) const override {
    Parameters p = make_parameters(problem);
    p.bias = static_cast<const float*>(arguments.packed);
    const Tile tile = tile_of(problem.geometry, problem.epilogue.kind);
    p.weights = reinterpret_cast<const WeightFragment*>(p.bias + int64_t{p.channel_blocks} *
                                                                     tile.channels());
    return std::unique_ptr<Launch>(std::make_unique<mma::KernelLaunch<Parameters>>(
        kName, device_function(problem), p,
        mma::Grid{static_cast<unsigned>(block_count(problem, p)), kWarps * kLanes}));
  }
};

}  // namespace
}  // namespace mma_gather

const Kernel& cuda_mma_kernel() {
  static const mma_gather::GatherKernel kernel;
  return kernel;
}

}  // namespace volup
