// SPDX-License-Identifier: Apache-2.0
//
// Host side of cuda/mma-rows: what it takes, its tables from the geometry, packing, launch.
#include <algorithm>
#include <limits>
#include <optional>

#include "cuda/mma_kernels.h"
#include "cuda/mma_launch.h"
#include "cuda/mma_rows.cuh"
#include "cuda/paired_axis.h"

namespace volup {
namespace mma_rows {
namespace {

constexpr std::string_view kName = "cuda/mma-rows";
constexpr int64_t kMaxChannels = 15;  // 16 with the constant
// The tensor core cuts instead of rounding each sum, and small terms come between large ones: more
// (tap, quad) pairs in a row would show against a chain of rounded products.
constexpr int64_t kMaxTurns = 6;
constexpr int64_t kMaxSize = int64_t{1} << 28;  // base position, halo and doubling fit an int

// The taps of D in the order of the tables; a phase without taps gets one without weights, which
// carries the bias.
struct DepthTap {
  int64_t phase;
  int64_t k;  // -1: no weights
  int64_t delta;
};

std::vector<DepthTap> depth_taps(const ConvTranspose3d& g) {
  std::vector<DepthTap> taps;
  for (const Phase& phase : phases(g, 0)) {
    for (const Tap& tap : phase.taps) taps.push_back({phase.r, tap.k, tap.delta});
    if (phase.taps.empty()) taps.push_back({phase.r, -1, 0});
  }
  return taps;
}

bool compensated(const Problem& problem) { return problem.precision == Precision::kFp32; }
int quads_of(const ConvTranspose3d& g) { return static_cast<int>((g.in_channels + kQuad) / kQuad); }

template <typename Io, bool kCompensated>
const void* function_of(EpilogueKind kind) {
  switch (kind) {
    case EpilogueKind::kLogsumexpSwishClamp:
      return reinterpret_cast<const void*>(
          mma_rows<Io, kCompensated, EpilogueKind::kLogsumexpSwishClamp>);
    case EpilogueKind::kSoftmaxSigmoid:
      return reinterpret_cast<const void*>(
          mma_rows<Io, kCompensated, EpilogueKind::kSoftmaxSigmoid>);
    case EpilogueKind::kAddHardswish:
      return reinterpret_cast<const void*>(mma_rows<Io, kCompensated, EpilogueKind::kAddHardswish>);
    case EpilogueKind::kIdentity:
      break;
  }
  return reinterpret_cast<const void*>(mma_rows<Io, kCompensated, EpilogueKind::kIdentity>);
}

template <typename Io>
const void* function_of(const Problem& problem) {
  return compensated(problem) ? function_of<Io, true>(problem.epilogue.kind)
                              : function_of<Io, false>(problem.epilogue.kind);
}

const void* device_function(const Problem& problem) {
  switch (problem.io) {
    case DType::kFp16:
      return function_of<__half>(problem);
    case DType::kBf16:
      return function_of<__nv_bfloat16>(problem);
    case DType::kFp32:
      break;
  }
  return function_of<float>(problem);
}

// Everything but pointers. The problem passed refuse().
Parameters make_parameters(const Problem& problem, int rows) {
  const ConvTranspose3d& g = problem.geometry;
  Parameters p = {};
  p.in_channels = static_cast<int>(g.in_channels);
  p.quads = quads_of(g);
  p.in_d = static_cast<int>(problem.input[2]);
  p.in_h = static_cast<int>(problem.input[3]);
  p.in_w = static_cast<int>(problem.input[4]);
  p.out_d = static_cast<int>(problem.output[2]);
  p.out_h = static_cast<int>(problem.output[3]);
  p.out_w = static_cast<int>(problem.output[4]);
  p.stride_d = static_cast<int>(g.stride[0]);
  p.rows = rows;
  p.tiles_x = ((p.out_w + 1) / 2 + kBaseX - 1) / kBaseX;
  p.tiles_y = ((p.out_h + 1) / 2 + rows - 1) / rows;
  p.tiles_z = (p.out_d + p.stride_d - 1) / p.stride_d;
  const int64_t plane = problem.output[2] * problem.output[3] * problem.output[4];
  p.out_sample = problem.output[1] * plane;

  for (const DepthTap& tap : depth_taps(g)) {
    int depth = 0;
    while (depth < p.planes && p.plane_offset[depth] != tap.delta) ++depth;
    if (depth == p.planes) p.plane_offset[p.planes++] = static_cast<int>(tap.delta);
    if (tap.k < 0) p.empty_taps |= 1u << p.taps;
    p.tap_plane[p.taps++] = depth;
    p.first_tap[tap.phase + 1] = p.taps;
  }
  const PairedAxis y = *paired_axis(g, 1), x = *paired_axis(g, 2);
  p.origin_y = static_cast<int>(std::min(y.delta[0], y.delta[1]));
  p.origin_x = static_cast<int>(std::min(x.delta[0], x.delta[1]));
  for (int i = 0; i < 2; ++i) {
    p.neighbour_y[i] = static_cast<int>(y.delta[i]) - p.origin_y;
    p.neighbour_x[i] = static_cast<int>(x.delta[i]) - p.origin_x;
    p.residue_y[i] = y.residue[i];
    p.residue_x[i] = x.residue[i];
  }
  p.finish = mma::make_finish(problem.epilogue, g.out_channels, plane);
  return p;
}

int64_t tile_count(const Problem& problem, const Parameters& p) {
  int64_t tiles = int64_t{p.tiles_x} * p.tiles_y;
  if (!checked_multiply(tiles, p.tiles_z, &tiles) ||
      !checked_multiply(tiles, problem.input[0], &tiles)) {
    return std::numeric_limits<int64_t>::max();
  }
  return tiles;
}

// Base rows of a tile; 0 where not even one fits. Results do not depend on it.
int choose_rows(const Problem& problem, const DeviceProperties& device) {
  const auto fits = [&](int rows, int blocks) {
    const Parameters p = make_parameters(problem, rows);
    const auto available = static_cast<int64_t>(device.shared_memory_bytes);
    // The device's limit is for one block, less the 1 KiB that the system takes of each.
    return SharedLayout(p).bytes(p.quads) <= (available + 1024) / blocks - 1024;
  };
  for (const int rows : {16, 8, 4}) {
    // Fewer rows where that fills the multiprocessors: a batch of one.
    const int64_t tiles = tile_count(problem, make_parameters(problem, rows));
    if (fits(rows, kBlocks) && (rows == 4 || tiles >= 4 * int64_t{device.multiprocessors}))
      return rows;
  }
  for (const int rows : {8, 4, 2, 1}) {
    if (fits(rows, 1)) return rows;
  }
  return 0;
}

class RowsKernel final : public Kernel {
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
    VOLUP_REFUSE_IF(g.in_channels > kMaxChannels, "input channels: got ", g.in_channels,
                    ", need at most ", kMaxChannels);
    VOLUP_REFUSE_IF(g.out_channels > 8 * kTiles, "output channels: got ", g.out_channels,
                    ", need at most ", 8 * kTiles);
    VOLUP_REFUSE_IF(!problem.weights.finite, "needs finite weights");
    VOLUP_REFUSE_IF(g.stride[0] > kMaxPhases, "stride on D: got ", g.stride[0], ", need at most ",
                    kMaxPhases);
    const std::vector<DepthTap> taps = depth_taps(g);
    VOLUP_REFUSE_IF(taps.size() > kMaxTaps, "kernel on D: got ", g.kernel[0],
                    " taps, need at most ", kMaxTaps, " with empty phases counted");
    int64_t most = 0;  // taps of a phase
    for (const Phase& phase : phases(g, 0)) {
      most = std::max(most, static_cast<int64_t>(phase.taps.size()));
    }
    VOLUP_REFUSE_IF(compensated(problem) && most * quads_of(g) > kMaxTurns,
                    "taps on D x channels: got ", most, " x ", kQuad * quads_of(g),
                    " with the bias, need at most ", kQuad * kMaxTurns, " in fp32");
    for (const DepthTap& tap : taps) {
      VOLUP_REFUSE_IF(std::abs(tap.delta) > kMaxTapOffset, "padding on D: a tap reads ", tap.delta,
                      " planes away, need at most ", kMaxTapOffset);
    }
    for (const int axis : {1, 2}) {
      if (auto refusal = refuse_unpaired(g, axis, "H and W")) return refusal;
    }
    for (int axis = 2; axis < 5; ++axis) {
      const int64_t size = std::max(problem.input[axis], problem.output[axis]);
      VOLUP_REFUSE_IF(size > kMaxSize, "sizes: got ", size, ", need at most ", kMaxSize);
    }
    VOLUP_REFUSE_IF(problem.input[2] * problem.input[3] > kMaxSize, "input D x H: got ",
                    problem.input[2] * problem.input[3], ", need at most ", kMaxSize);
    const int rows = choose_rows(problem, device);
    VOLUP_REFUSE_IF(rows == 0, "needs more than the ", device.shared_memory_bytes,
                    " bytes of shared memory of the device");
    const int64_t tiles = tile_count(problem, make_parameters(problem, rows));
    VOLUP_REFUSE_IF(tiles > std::numeric_limits<int>::max(), "needs a grid of less than 2^31, got ",
                    tiles);
    return {};
  }

  std::string choose(const Problem& problem, const DeviceProperties& device) const override {
    return cat("tile ", choose_rows(problem, device), "x", kBaseX, ", ", kWarps, " warps, ",
               compensated(problem) ? "3 TF32 products" : "1 TF32 product");
  }

  std::string pack_key(const Problem& problem, const DeviceProperties&) const override {
    return compensated(problem) ? "compensated" : "single";
  }

  Result<std::vector<std::byte>> pack(const Model& model, const Problem& problem,
                                      const DeviceProperties&) const override {
    const ConvTranspose3d& g = model.geometry();
    const PairedAxis y = *paired_axis(g, 1), x = *paired_axis(g, 2);
    const double scale = mma::logit_scale(model.epilogue());
    const bool coupled = couples_channels(model.epilogue().kind);
    std::vector<WeightFragment> fragments;
    int64_t previous_phase = -1;
    for (const DepthTap& tap : depth_taps(g)) {
      const bool carries_bias = tap.phase != previous_phase;
      previous_phase = tap.phase;
      for (int quad = 0; quad < quads_of(g); ++quad) {
        for (int u = 0; u < kUnits; ++u) {
          for (int64_t lane = 0; lane < kTiles * kLanes; ++lane) {
            const int64_t co = lane / kLanes * 8 + lane % kLanes / 4;
            const int64_t ci = quad * kQuad + lane % 4;
            WeightFragment w = {};
            if (ci == g.in_channels && carries_bias && u < 4) {
              const bool real = co < g.out_channels;
              const double bias = real && model.bias() != nullptr ? model.bias()[co] * scale : 0.0;
              const mma::SplitWeight b = mma::split(real || !coupled ? bias : mma::kNoChannel);
              w.high[0] = b.high;
              (compensated(problem) ? w.low[0] : w.high[1]) = b.low;
            }
            if (ci < g.in_channels && co < g.out_channels && tap.k >= 0) {
              for (int half = 0; half < (u == 0 ? 1 : 2); ++half) {
                const int neighbour = unit(u).neighbour[half], phase = unit(u).phase;
                const double value =
                    scale * mma::weight_at(model, ci, co, tap.k, y.k[phase / 2][neighbour / 2],
                                           x.k[phase % 2][neighbour % 2]);
                const mma::SplitWeight s = mma::split(value);
                w.high[half] = s.high;
                if (compensated(problem)) w.low[half] = s.low;
              }
            }
            fragments.push_back(w);
          }
        }
      }
    }
    return mma::bytes_of(fragments);
  }

  Result<std::unique_ptr<Launch>> prepare(const Problem& problem, const DeviceProperties& device,
                                          const PrepareArguments& arguments) const override {
    Parameters p = make_parameters(problem, choose_rows(problem, device));
    p.weights = static_cast<const WeightFragment*>(arguments.packed);
    const void* function = device_function(problem);
    const auto shared_bytes = static_cast<size_t>(SharedLayout(p).bytes(p.quads));
    VOLUP_RETURN_IF_CUDA_ERROR(
        cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes)),
        "shared memory of cuda/mma-rows");
    return std::unique_ptr<Launch>(std::make_unique<mma::KernelLaunch<Parameters>>(
        kName, function, p,
        mma::Grid{static_cast<unsigned>(tile_count(problem, p)), kThreads, shared_bytes}));
  }
};

}  // namespace
}  // namespace mma_rows

const Kernel& cuda_mma_rows_kernel() {
  static const mma_rows::RowsKernel kernel;
  return kernel;
}

}  // namespace volup
