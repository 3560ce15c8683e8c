// SPDX-License-Identifier: Apache-2.0
//
// The reference kernel of reference.h. A task is one row of the output over all channels; the
// channels of one voxel are summed side by side in the worker's part of the workspace.
#include "cpu/reference.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "cpu/cpu_kernels.h"
#include "cpu/thread_pool.h"
#include "half.h"

namespace volup {
namespace {

// The input position that reaches output position o through tap k of an axis, or -1.
int64_t source(const ConvTranspose3d& g, size_t axis, int64_t o, int64_t k, int64_t in) {
  const int64_t scaled = o + g.padding_begin[axis] - k * g.dilation[axis];  // = i * stride
  if (scaled < 0 || scaled % g.stride[axis] != 0) return -1;
  const int64_t i = scaled / g.stride[axis];
  return i < in ? i : -1;
}

class ReferenceLaunch final : public Launch {
 public:
  ReferenceLaunch(const Problem& problem, const PrepareArguments& arguments)
      : problem_(problem),
        weight_(static_cast<const float*>(arguments.packed)),
        bias_(weight_ + problem.geometry.weight_count()),
        logits_(static_cast<double*>(arguments.workspace)) {}

  Status run(const RunArguments& arguments) const override {
    const auto [n, c, d, h, w] = problem_.conv_output;
    arguments.threads->run(n * d * h, [&](int64_t row, int worker) {
      double* logits = logits_ + worker * problem_.geometry.out_channels;
      for (int64_t ow = 0; ow < problem_.conv_output[4]; ++ow) {
        convolve(arguments.x, row, ow, logits);
        finish(arguments, row, ow, logits);
      }
    });
    return {};
  }

 private:
  // logits[co] = bias[co] + sum over ci and taps, for the voxel (row, ow); row counts (n, od, oh).
  void convolve(const void* x, int64_t row, int64_t ow, double* logits) const {
    const ConvTranspose3d& g = problem_.geometry;
    const auto [n_count, ci_count, id_count, ih_count, iw_count] = problem_.input;
    const int64_t oh = row % problem_.conv_output[3];
    const int64_t od = row / problem_.conv_output[3] % problem_.conv_output[2];
    const int64_t n = row / problem_.conv_output[3] / problem_.conv_output[2];
    const int64_t in_per_group = g.in_per_group();
    const int64_t out_per_group = g.out_per_group();
    const int64_t plane = id_count * ih_count * iw_count;

    std::copy(bias_, bias_ + g.out_channels, logits);
    for (int64_t kd = 0; kd < g.kernel[0]; ++kd) {
      const int64_t id = source(g, 0, od, kd, id_count);
      if (id < 0) continue;
      for (int64_t kh = 0; kh < g.kernel[1]; ++kh) {
        const int64_t ih = source(g, 1, oh, kh, ih_count);
        if (ih < 0) continue;
        for (int64_t kw = 0; kw < g.kernel[2]; ++kw) {
          const int64_t iw = source(g, 2, ow, kw, iw_count);
          if (iw < 0) continue;
          const int64_t k = (kd * g.kernel[1] + kh) * g.kernel[2] + kw;
          const float* tap = weight_ + k * g.in_channels * out_per_group;  // [Cin, Cout / groups]
          for (int64_t ci = 0; ci < ci_count; ++ci) {
            const int64_t at = (n * ci_count + ci) * plane + (id * ih_count + ih) * iw_count + iw;
            const double value = load_element(problem_.io, x, at);
            double* sums = logits + ci / in_per_group * out_per_group;
            for (int64_t co = 0; co < out_per_group; ++co) {
              sums[co] += value * tap[ci * out_per_group + co];
            }
          }
        }
      }
    }
  }

  void finish(const RunArguments& arguments, int64_t row, int64_t ow, const double* logits) const {
    const int64_t channels = problem_.conv_output[1];
    const int64_t rows = problem_.conv_output[2] * problem_.conv_output[3];
    const int64_t plane = rows * problem_.conv_output[4];
    const int64_t n = row / rows;
    const int64_t voxel = row % rows * problem_.conv_output[4] + ow;
    const auto index = [&](int64_t c) { return (n * channels + c) * plane + voxel; };
    const auto logit = [&](int64_t c) { return logits[c]; };
    const auto put = [&](int64_t c, double value) {
      store_element(problem_.io, arguments.out, index(c), value);
    };
    switch (problem_.epilogue.kind) {
      case EpilogueKind::kIdentity:
        for (int64_t c = 0; c < channels; ++c) put(c, logits[c]);
        break;
      case EpilogueKind::kLogsumexpSwishClamp:
        store_element(problem_.io, arguments.out, n * plane + voxel,
                      swish_clamp(logsumexp<double>(channels, logit), problem_.epilogue));
        break;
      case EpilogueKind::kSoftmaxSigmoid:
        softmax_sigmoid<double>(channels, logit, put);
        break;
      case EpilogueKind::kAddHardswish:
        for (int64_t c = 0; c < channels; ++c) {
          const double add = load_element(problem_.io, arguments.add, index(c));
          put(c, hardswish_product(logits[c] + add, problem_.epilogue));
        }
        break;
    }
  }

  Problem problem_;
  const float* weight_;  // [taps, Cin, Cout / groups]
  const float* bias_;    // [Cout]
  double* logits_;       // [workers, Cout]
};

}  // namespace

Refusal CpuReferenceKernel::refuse(const Problem& problem, const DeviceProperties& device) const {
  VOLUP_REFUSE_IF(device.type != DeviceType::kCpu, "needs a CPU, got ", name_of(device.type));
  VOLUP_REFUSE_IF(static_cast<int>(problem.epilogue.kind) >= kEpilogueCount, "unknown epilogue ",
                  static_cast<int>(problem.epilogue.kind));
  return {};
}

std::string CpuReferenceKernel::choose(const Problem&, const DeviceProperties& device) const {
  return cat("float64, ", device.threads, device.threads == 1 ? " thread" : " threads");
}

Result<size_t> CpuReferenceKernel::workspace_bytes(const Problem& problem,
                                                   const DeviceProperties& device,
                                                   size_t limit) const {
  int64_t bytes = 0;
  if (!checked_multiply(problem.geometry.out_channels, device.threads * int64_t{sizeof(double)},
                        &bytes) ||
      static_cast<size_t>(bytes) > limit) {
    return Status(VOLUP_STATUS_OUT_OF_MEMORY,
                  cat("workspace limit: got ", limit, " bytes, need ", bytes,
                      " (cpu/reference keeps one voxel's channels per thread)"));
  }
  return static_cast<size_t>(bytes);
}

Result<std::vector<std::byte>> CpuReferenceKernel::pack(const Model& model, const Problem&,
                                                        const DeviceProperties&) const {
  const ConvTranspose3d& g = model.geometry();
  const int64_t taps = g.taps();
  const int64_t per_tap = g.in_channels * g.out_per_group();
  std::vector<float> values(static_cast<size_t>(per_tap * taps + g.out_channels));
  for (int64_t c = 0; c < per_tap; ++c) {
    for (int64_t k = 0; k < taps; ++k) {
      values[static_cast<size_t>(k * per_tap + c)] = model.weight()[c * taps + k];
    }
  }
  if (model.bias() != nullptr) {
    std::copy_n(model.bias(), g.out_channels, values.begin() + per_tap * taps);
  }
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

Result<std::unique_ptr<Launch>> CpuReferenceKernel::prepare(
    const Problem& problem, const DeviceProperties&, const PrepareArguments& arguments) const {
  return std::unique_ptr<Launch>(std::make_unique<ReferenceLaunch>(problem, arguments));
}

const Kernel& cpu_reference_kernel() {
  static const CpuReferenceKernel kernel;
  return kernel;
}

}  // namespace volup
