// SPDX-License-Identifier: Apache-2.0
//
// Kernel "cuda/sm90-march", host side: what it takes, its tables, packing, launch.
#include <algorithm>
#include <cstring>
#include <limits>

#include "cuda/mma_launch.h"
#include "cuda/mma_weights.h"
#include "cuda/paired_axis.h"
#include "cuda/sm90_kernels.h"
#include "cuda/sm90_march.cuh"
#include "half.h"

namespace volup {
namespace sm90_march {
namespace {

constexpr std::string_view kName = "cuda/sm90-march";
constexpr int64_t kMaxInt = std::numeric_limits<int>::max();

bool compensated(const Problem& problem) { return problem.precision == Precision::kFp32; }
int parts_of(const Problem& problem) { return compensated(problem) ? 2 : 1; }
// 16-bit x is exact in one part.
int x_parts_of(const Problem& problem) {
  return problem.io == DType::kFp32 ? parts_of(problem) : 1;
}

template <typename Io, int kXParts>
const void* function_of(const Problem& problem) {
  constexpr auto kLogsumexp = EpilogueKind::kLogsumexpSwishClamp;
  const bool logsumexp = problem.epilogue.kind == kLogsumexp;
  if (compensated(problem)) {
    return logsumexp
               ? reinterpret_cast<const void*>(sm90_march<Io, kXParts, 2, kLogsumexp>)
               : reinterpret_cast<const void*>(sm90_march<Io, kXParts, 2, EpilogueKind::kIdentity>);
  }
  return logsumexp ? reinterpret_cast<const void*>(sm90_march<Io, 1, 1, kLogsumexp>)
                   : reinterpret_cast<const void*>(sm90_march<Io, 1, 1, EpilogueKind::kIdentity>);
}

const void* device_function(const Problem& problem) {
  switch (problem.io) {
    case DType::kFp16:
      return function_of<__half, 1>(problem);
    case DType::kBf16:
      return function_of<__nv_bfloat16, 1>(problem);
    case DType::kFp32:
      break;
  }
  return function_of<float, 2>(problem);
}

struct Axes {
  PairedAxis z, y, x;
};

Axes axes_of(const ConvTranspose3d& g) {
  return {*paired_axis(g, 0), *paired_axis(g, 1), *paired_axis(g, 2)};
}

// Of the neighbours along W the left one.
int shared_side(const PairedAxis& x) { return x.delta[0] < x.delta[1] ? 0 : 1; }

// Base positions of an output axis, and the tiles along it.
int64_t base_of(int64_t out) { return (out + 1) / 2; }
int64_t tiles_y(const Problem& problem) { return (base_of(problem.output[3]) + kRows - 1) / kRows; }
int64_t tiles_x(const Problem& problem) {
  return (base_of(problem.output[4]) + kColumns - 1) / kColumns;
}
int64_t columns_of(const Problem& problem) {
  return problem.input[0] * tiles_y(problem) * tiles_x(problem);
}

Parameters make_parameters(const Problem& problem, const Axes& axes) {
  Parameters p = {};
  const auto size = static_cast<int64_t>(element_size(problem.io));
  p.in_channels = static_cast<int>(problem.geometry.in_channels);
  p.in_d = static_cast<int>(problem.input[2]);
  p.in_h = static_cast<int>(problem.input[3]);
  p.in_w = static_cast<int>(problem.input[4]);
  p.out_d = static_cast<int>(problem.output[2]);
  p.out_h = static_cast<int>(problem.output[3]);
  p.out_w = static_cast<int>(problem.output[4]);
  p.base_d = static_cast<int>(base_of(p.out_d));
  p.tiles_y = static_cast<int>(tiles_y(problem));
  p.tiles_x = static_cast<int>(tiles_x(problem));
  p.steps = static_cast<unsigned>(columns_of(problem) * p.base_d);
  const int64_t out_plane = problem.output[3] * problem.output[4];
  p.out_sample = problem.output[1] * problem.output[2] * out_plane;
  p.direction = static_cast<int>(axes.z.delta[1] - axes.z.delta[0]);
  p.in_step = static_cast<int>(p.direction * problem.input[3] * problem.input[4] * size);
  p.out_step = static_cast<int>(p.direction * 2 * out_plane * size);
  p.out_row = static_cast<int>((axes.y.residue[1] - axes.y.residue[0]) * problem.output[4] * size);
  for (int i = 0; i < 2; ++i) {
    p.offset_z[i] = static_cast<int>(axes.z.delta[i]);
    p.offset_y[i] = static_cast<int>(axes.y.delta[i]);
    p.residue_z[i] = axes.z.residue[i];
    p.residue_y[i] = axes.y.residue[i];
    p.residue_x[i] = axes.x.residue[i];
  }
  p.offset_x = static_cast<int>(std::min(axes.x.delta[0], axes.x.delta[1]));
  p.shared_side = shared_side(axes.x);
  p.finish = mma::make_finish(problem.epilogue, problem.geometry.out_channels,
                              problem.output[2] * out_plane);
  return p;
}

class MarchKernel final : public Kernel {
 public:
  std::string_view name() const override { return kName; }
  DeviceType device() const override { return DeviceType::kCuda; }

  Refusal refuse(const Problem& problem, const DeviceProperties& device) const override {
    const ConvTranspose3d& g = problem.geometry;
    VOLUP_REFUSE_IF(device.type != DeviceType::kCuda, "needs a CUDA device, got ",
                    name_of(device.type));
    VOLUP_REFUSE_IF(problem.epilogue.kind != EpilogueKind::kLogsumexpSwishClamp &&
                        problem.epilogue.kind != EpilogueKind::kIdentity,
                    "epilogue: need logsumexp_swish_clamp or identity, got ",
                    static_cast<int>(problem.epilogue.kind));
    VOLUP_REFUSE_IF(device.compute_capability != 90, "needs compute capability 9.0, got ",
                    device.compute_capability / 10, ".", device.compute_capability % 10);
    VOLUP_REFUSE_IF(g.groups != 1, "groups: got ", g.groups, ", need 1");
    VOLUP_REFUSE_IF(g.in_channels > kMaxInChannels, "input channels: got ", g.in_channels,
                    ", need at most ", kMaxInChannels);
    VOLUP_REFUSE_IF(g.out_channels > kOutChannels, "output channels: got ", g.out_channels,
                    ", need at most ", kOutChannels);
    VOLUP_REFUSE_IF(!problem.weights.finite, "needs finite weights");
    for (int axis = 0; axis < 3; ++axis) {
      if (auto refusal = refuse_unpaired(g, axis, "D, H and W")) return refusal;
    }
    for (int axis = 2; axis < 5; ++axis) {
      const int64_t size = std::max(problem.input[axis], problem.output[axis]);
      VOLUP_REFUSE_IF(size > kMaxInt / 4, "sizes: got ", size, ", need at most ", kMaxInt / 4);
    }
    const auto size = static_cast<int64_t>(element_size(problem.io));
    const int64_t in_plane = problem.input[3] * problem.input[4];
    const int64_t out_plane = problem.output[3] * problem.output[4];
    VOLUP_REFUSE_IF(in_plane > kMaxInt / size, "input H x W: got ", in_plane, ", need at most ",
                    kMaxInt / size);
    VOLUP_REFUSE_IF(out_plane > kMaxInt / (2 * size), "output H x W: got ", out_plane,
                    ", need at most ", kMaxInt / (2 * size));
    int64_t steps = 0;
    VOLUP_REFUSE_IF(!checked_multiply(columns_of(problem), base_of(problem.output[2]), &steps) ||
                        steps > kMaxInt,
                    "needs fewer than 2^31 steps of ", kRows, "x", kColumns, " positions");
    return {};
  }

  std::string choose(const Problem& problem, const DeviceProperties&) const override {
    const int products = x_parts_of(problem) + parts_of(problem) - 1;
    return cat("columns ", kRows, "x", kColumns, ", ", kGroups, " warpgroups, wgmma TF32 x",
               products);
  }

  std::string pack_key(const Problem& problem, const DeviceProperties&) const override {
    return cat(parts_of(problem), " ", name_of(problem.io));
  }

  Result<std::vector<std::byte>> pack(const Model& model, const Problem& problem,
                                      const DeviceProperties&) const override {
    const ConvTranspose3d& g = model.geometry();
    const Axes axes = axes_of(g);
    const int parts = parts_of(problem);
    const double scale = mma::logit_scale(model.epilogue());
    const bool coupled = couples_channels(model.epilogue().kind);
    std::vector<float> tiles(static_cast<size_t>(kTiles * parts * kTileElements));
    const auto put = [&](int tap, int tap_y, int column, int k, const mma::SplitWeight& w) {
      tiles[static_cast<size_t>(element_of_tile(tile_of(tap, tap_y, 0, parts), column, k))] =
          w.high;
      if (parts == 2) {
        tiles[static_cast<size_t>(element_of_tile(tile_of(tap, tap_y, 1, parts), column, k))] =
            w.low;
      }
    };
    for (int column = 0; column < 32; ++column) {
      const int phase_x = phase_of_column(column), co = channel_of_column(column);
      const bool real = co < g.out_channels;
      const double bias = real && model.bias() != nullptr ? model.bias()[co] * scale : 0.0;
      // An output that no tap reaches is the bias itself, which two parts alone cut to 22 bits.
      const mma::SplitWeight b = mma::split(real || !coupled ? bias : mma::kNoChannel);
      const mma::SplitWeight b_rest = {0.0f, real ? mma::tf32_from(bias - b.high - b.low) : 0.0f};
      for (int tap = 0; tap < 3; ++tap) {
        for (int tap_y = 0; tap_y < 3; ++tap_y) {
          for (int side = 0; side < 2 && real; ++side) {
            const int neighbour_x = side == shared_side(axes.x) ? 0 : 1;
            if (neighbour_x > phase_x) continue;
            for (int ci = 0; ci < g.in_channels; ++ci) {
              put(tap, tap_y, column, side * 4 + ci,
                  mma::split(scale * mma::weight_at(model, ci, co, axes.z.k[tap > 0][tap > 1],
                                                    axes.y.k[tap_y > 0][tap_y > 1],
                                                    axes.x.k[phase_x][neighbour_x])));
            }
          }
          // Once a phase.
          const int k = static_cast<int>(g.in_channels);
          if (tap < 2 && tap_y < 2) {
            put(tap, tap_y, column, k, b);
            put(tap, tap_y, column, 4 + k, parts == 1 ? mma::SplitWeight{b.low, 0.0f} : b_rest);
          }
        }
      }
    }
    std::vector<std::byte> bytes = mma::bytes_of(tiles);
    bytes.resize(bytes.size() + 2 * kConstantBytes);
    const size_t size = element_size(problem.io);
    for (size_t i = 0; i < kConstantBytes / size; ++i) {
      store_element(problem.io, bytes.data() + (bytes.size() - 2 * kConstantBytes), i, 1.0);
    }
    return bytes;
  }

  Result<std::unique_ptr<Launch>> prepare(const Problem& problem, const DeviceProperties& device,
                                          const PrepareArguments& arguments) const override {
    Parameters p = make_parameters(problem, axes_of(problem.geometry));
    p.weights = static_cast<const float*>(arguments.packed);
    p.constants = static_cast<const std::byte*>(arguments.packed) +
                  kTiles * parts_of(problem) * kTileElements * sizeof(float);
    const auto blocks = std::min(static_cast<unsigned>(device.multiprocessors), p.steps);
    return std::unique_ptr<Launch>(std::make_unique<mma::KernelLaunch<Parameters>>(
        kName, device_function(problem), p,
        mma::Grid{.blocks = blocks, .threads = kThreads, .dependent = true}));
  }
};

}  // namespace
}  // namespace sm90_march

const Kernel& cuda_sm90_march_kernel() {
  static const sm90_march::MarchKernel kernel;
  return kernel;
}

}  // namespace volup
