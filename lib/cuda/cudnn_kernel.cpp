// SPDX-License-Identifier: Apache-2.0
//
// "cuda/cudnn": the fallback. A transposed convolution is the data gradient of a convolution, which
// cuDNN has; the epilogue pass follows. All tensors that cuDNN sees are fp32 in aligned memory:
// 16-bit input is widened first and logits stay fp32, since a 16-bit convolution output would be
// rounded before the epilogue, and every 16-bit value is exact in TF32's range, so TF32 products
// with fp32 sums serve the bf16 and fp16 precisions too. The price is a workspace; under a limit
// the batch goes through it in pieces.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "cuda/cuda_device.h"
#include "cuda/cuda_error.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cudnn_api.h"
#include "cuda/epilogue_pass.h"

namespace volup {
namespace {

constexpr int64_t kInt32Limit = std::numeric_limits<int32_t>::max();
constexpr int64_t kAlignment = 256;
// cuDNN's descriptors count in int32, and its kernels may put the batch in a grid dimension.
constexpr int64_t kPieceSamples = 65535;
// Pieces are not made larger than this for speed: by then the device is full.
constexpr int64_t kPreferredBytes = int64_t{1} << 30;
// cuDNN's own scratch beyond copies of its operands.
constexpr int64_t kScratchBytes = int64_t{32} << 20;

// Versions that are known to compute something wrong near here.
struct WrongVersions {
  int64_t first;
  int64_t last;
  const char* why;
};
constexpr WrongVersions kWrongVersions[] = {
    {90800, 91299,
     "9.8 to 9.12 are reported to be silently wrong in 3-D convolutions (pytorch/pytorch 163539)"},
};

int64_t align_up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
int64_t pad8(int64_t channels) { return (channels + 7) / 8 * 8; }

int64_t plane_of(const Shape5& shape) { return shape[2] * shape[3] * shape[4]; }

// How the workspace is laid out: x as floats, logits, cuDNN's own; for samples at a time.
struct Plan {
  int64_t samples = 0;
  int64_t x_bytes = 0;
  int64_t logit_bytes = 0;
  int64_t cudnn_bytes = 0;

  int64_t bytes() const { return x_bytes + logit_bytes + cudnn_bytes; }
};

// What cuDNN takes cannot be known without a device. It gets room for a copy of each operand in
// another layout with channels padded to 8, and an algorithm that needs more is not chosen.
Plan plan_for(const Problem& problem, int64_t samples) {
  const ConvTranspose3d& g = problem.geometry;
  const int64_t in_plane = plane_of(problem.input);
  const int64_t out_plane = plane_of(problem.conv_output);
  Plan plan;
  plan.samples = samples;
  plan.x_bytes = align_up(4 * samples * g.in_channels * in_plane);
  plan.logit_bytes = align_up(4 * samples * g.out_channels * out_plane);
  plan.cudnn_bytes =
      align_up(4 * samples * (pad8(g.in_channels) * in_plane + pad8(g.out_channels) * out_plane) +
               4 * pad8(g.in_channels) * pad8(g.out_per_group()) * g.taps() + kScratchBytes);
  return plan;
}

Result<Plan> make_plan(const Problem& problem, size_t limit) {
  const auto most = static_cast<int64_t>(
      std::min(limit, static_cast<size_t>(std::numeric_limits<int64_t>::max())));
  const int64_t smallest = plan_for(problem, 1).bytes();
  if (smallest > most) {
    return Status(VOLUP_STATUS_OUT_OF_MEMORY, cat("workspace limit: got ", limit, " bytes, need ",
                                                  smallest, " for one sample (cuda/cudnn)"));
  }
  const int64_t budget = std::min(most, std::max(kPreferredBytes, smallest));
  const int64_t elements = std::max(problem.geometry.in_channels * plane_of(problem.input),
                                    problem.geometry.out_channels * plane_of(problem.conv_output));
  int64_t low = 1;
  int64_t high = std::min({problem.input[0], kPieceSamples, kInt32Limit / elements});
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (plan_for(problem, middle).bytes() <= budget) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return plan_for(problem, low);
}

Status cudnn_status(int status, const char* what) {
  if (status == kCudnnSuccess) return {};
  static_cast<void>(cudaGetLastError());
  // The 2000s are parameters it will not have, the 3000s problems it does not support.
  const bool refused = status >= 2000 && status < 4000;
  return {refused ? VOLUP_STATUS_UNSUPPORTED : VOLUP_STATUS_DEVICE_ERROR,
          cat("cuda/cudnn, ", what, ": got ", cudnn_api().get_error_string(status))};
}

#define VOLUP_RETURN_IF_CUDNN_ERROR(call, what) VOLUP_RETURN_IF_ERROR(cudnn_status((call), (what)))

bool is_permitted(CudnnMath math, Precision precision) {
  if (precision == Precision::kFp32) return math == CudnnMath::kFma;
  return math != CudnnMath::kTensorOpConversion;
}

// The convolution whose data gradient is the problem, for one piece.
class CudnnLaunch final : public Launch {
 public:
  CudnnLaunch(const Problem& problem, int device_index, const Plan& plan,
              const PrepareArguments& arguments)
      : problem_(problem),
        device_index_(device_index),
        plan_(plan),
        weight_(static_cast<const float*>(arguments.packed)),
        bias_(weight_ + problem.geometry.weight_count()),
        x_(static_cast<std::byte*>(arguments.workspace)),
        logits_(x_ + plan.x_bytes),
        scratch_(logits_ + plan.logit_bytes) {}

  ~CudnnLaunch() override {
    const CudaContextScope scope(device_index_);
    const CudnnApi& api = cudnn_api();
    if (convolution_ != nullptr) api.destroy_convolution(convolution_);
    if (filter_ != nullptr) api.destroy_filter(filter_);
    if (output_ != nullptr) api.destroy_tensor(output_);
    if (input_ != nullptr) api.destroy_tensor(input_);
    if (handle_ != nullptr) api.destroy(handle_);
  }

  CudnnLaunch(const CudnnLaunch&) = delete;
  CudnnLaunch& operator=(const CudnnLaunch&) = delete;

  Status prepare() {
    VOLUP_RETURN_IF_CUDNN_ERROR(cudnn_api().create(&handle_), "handle");
    VOLUP_RETURN_IF_ERROR(describe());
    VOLUP_RETURN_IF_ERROR(choose_algorithm());
    return warm_up();
  }

  // cuDNN may have put memory of its handle behind what a graph replays.
  bool graphs_need_it() const override { return true; }

  Status run(const RunArguments& run) const override {
    const auto stream = static_cast<cudaStream_t>(run.stream);
    VOLUP_RETURN_IF_CUDNN_ERROR(cudnn_api().set_stream(handle_, stream), "stream");
    const int64_t batch = problem_.input[0];
    for (int64_t done = 0; done < batch; done += plan_.samples) {
      // The last piece reaches back so that one plan serves all; what it repeats comes out alike.
      VOLUP_RETURN_IF_ERROR(run_piece(run, std::min(done, batch - plan_.samples), stream));
    }
    return {};
  }

 private:
  Status set_tensor(CudnnTensor* tensor, Shape5 shape) const {
    const CudnnApi& api = cudnn_api();
    shape[0] = plan_.samples;
    int sizes[5];
    int strides[5];
    int64_t stride = 1;
    for (size_t axis = 5; axis-- > 0;) {
      sizes[axis] = static_cast<int>(shape[axis]);
      strides[axis] = static_cast<int>(stride);
      stride *= shape[axis];
    }
    VOLUP_RETURN_IF_CUDNN_ERROR(api.create_tensor(tensor), "tensor descriptor");
    return cudnn_status(api.set_tensor(*tensor, kCudnnFloat, 5, sizes, strides),
                        "tensor descriptor");
  }

  Status describe() {
    const CudnnApi& api = cudnn_api();
    const ConvTranspose3d& g = problem_.geometry;
    VOLUP_RETURN_IF_ERROR(set_tensor(&input_, problem_.input));
    VOLUP_RETURN_IF_ERROR(set_tensor(&output_, problem_.conv_output));
    int sizes[5] = {static_cast<int>(g.in_channels), static_cast<int>(g.out_per_group())};
    int padding[3];
    int stride[3];
    int dilation[3];
    for (size_t axis = 0; axis < 3; ++axis) {
      sizes[2 + axis] = static_cast<int>(g.kernel[axis]);
      padding[axis] = static_cast<int>(g.padding_begin[axis]);
      stride[axis] = static_cast<int>(g.stride[axis]);
      dilation[axis] = static_cast<int>(g.dilation[axis]);
    }
    VOLUP_RETURN_IF_CUDNN_ERROR(api.create_filter(&filter_), "filter descriptor");
    VOLUP_RETURN_IF_CUDNN_ERROR(api.set_filter(filter_, kCudnnFloat, kCudnnNchw, 5, sizes),
                                "filter descriptor");
    VOLUP_RETURN_IF_CUDNN_ERROR(api.create_convolution(&convolution_), "convolution descriptor");
    VOLUP_RETURN_IF_CUDNN_ERROR(api.set_convolution(convolution_, 3, padding, stride, dilation,
                                                    kCudnnCrossCorrelation, kCudnnFloat),
                                "convolution descriptor");
    return cudnn_status(api.set_groups(convolution_, static_cast<int>(g.groups)), "groups");
  }

  // Algorithm 1 alone: algorithm 0 adds atomically, and the errors of the FFT and Winograd ones do
  // not stay within the precision contract.
  Status choose_algorithm() {
    const CudnnApi& api = cudnn_api();
    const CudnnMath asked =
        problem_.precision == Precision::kFp32 ? CudnnMath::kFma : CudnnMath::kTensorOp;
    VOLUP_RETURN_IF_CUDNN_ERROR(api.set_math(convolution_, asked), "math type");
    CudnnAlgorithm found[16];
    int count = 0;
    VOLUP_RETURN_IF_CUDNN_ERROR(
        api.get_algorithms(handle_, filter_, input_, convolution_, output_,
                           static_cast<int>(std::size(found)), &count, found),
        "algorithms");
    for (const CudnnAlgorithm& candidate : std::span(found, static_cast<size_t>(count))) {
      if (candidate.status != kCudnnSuccess || candidate.algo != kCudnnBackwardDataAlgo1 ||
          candidate.determinism != kCudnnDeterministic ||
          !is_permitted(candidate.math, problem_.precision)) {
        continue;
      }
      size_t bytes = 0;
      if (api.set_math(convolution_, candidate.math) == kCudnnSuccess &&
          api.get_workspace(handle_, filter_, input_, convolution_, output_, candidate.algo,
                            &bytes) == kCudnnSuccess &&
          bytes <= static_cast<size_t>(plan_.cudnn_bytes)) {
        return {};
      }
    }
    return unsupported("cuda/cudnn: cuDNN has no deterministic algorithm for '", print(problem_),
                       "' with ", asked == CudnnMath::kFma ? "FMA" : "tensor", " math and ",
                       plan_.cudnn_bytes, " bytes");
  }

  // The first call of an algorithm may load code and allocate, which a stream that is being
  // captured does not allow. Earlier work may still be using the workspace.
  Status warm_up() const {
    VOLUP_RETURN_IF_ERROR(load_epilogue_pass(problem_.epilogue.kind, problem_.io));
    VOLUP_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize(), "cuda/cudnn, wait");
    VOLUP_RETURN_IF_CUDNN_ERROR(cudnn_api().set_stream(handle_, nullptr), "stream");
    VOLUP_RETURN_IF_ERROR(convolve(x_));
    return cuda_status(cudaDeviceSynchronize(), "cuda/cudnn, first run");
  }

  Status convolve(const void* x) const {
    const float one = 1.0f;
    const float zero = 0.0f;
    return cudnn_status(
        cudnn_api().backward_data(handle_, &one, filter_, weight_, input_, x, convolution_,
                                  kCudnnBackwardDataAlgo1, scratch_,
                                  static_cast<size_t>(plan_.cudnn_bytes), &zero, output_, logits_),
        "data gradient");
  }

  Status run_piece(const RunArguments& run, int64_t first, cudaStream_t stream) const {
    const ConvTranspose3d& g = problem_.geometry;
    const auto element = static_cast<int64_t>(element_size(problem_.io));
    const int64_t in_sample = g.in_channels * plane_of(problem_.input);
    const int64_t out_offset = first * problem_.output[1] * plane_of(problem_.output) * element;
    const void* x = static_cast<const std::byte*>(run.x) + first * in_sample * element;
    // cuDNN may assume more than the alignment of a float.
    if (problem_.io != DType::kFp32 || reinterpret_cast<uintptr_t>(x) % 16 != 0) {
      VOLUP_RETURN_IF_ERROR(launch_widen(x, problem_.io, reinterpret_cast<float*>(x_),
                                         plan_.samples * in_sample, stream));
      x = x_;
    }
    VOLUP_RETURN_IF_ERROR(convolve(x));
    EpiloguePass pass;
    pass.logits = reinterpret_cast<const float*>(logits_);
    pass.bias = bias_;
    if (run.add != nullptr) pass.add = static_cast<const std::byte*>(run.add) + out_offset;
    pass.out = static_cast<std::byte*>(run.out) + out_offset;
    pass.epilogue = problem_.epilogue;
    pass.samples = plan_.samples;
    pass.channels = g.out_channels;
    pass.plane = plane_of(problem_.conv_output);
    return launch_epilogue_pass(pass, problem_.io, stream);
  }

  Problem problem_;
  int device_index_;
  Plan plan_;
  const float* weight_;
  const float* bias_;
  std::byte* x_;
  std::byte* logits_;
  std::byte* scratch_;
  CudnnHandle handle_ = nullptr;
  CudnnTensor input_ = nullptr;
  CudnnTensor output_ = nullptr;
  CudnnFilter filter_ = nullptr;
  CudnnConvolution convolution_ = nullptr;
};

class CudnnKernel final : public Kernel {
 public:
  std::string_view name() const override { return "cuda/cudnn"; }
  DeviceType device() const override { return DeviceType::kCuda; }

  Refusal refuse(const Problem& problem, const DeviceProperties& device) const override {
    const ConvTranspose3d& g = problem.geometry;
    const int kind = static_cast<int>(problem.epilogue.kind);
    VOLUP_REFUSE_IF(kind < 0 || kind >= kEpilogueCount, "unknown epilogue ", kind);
    VOLUP_REFUSE_IF(static_cast<int>(problem.io) > static_cast<int>(DType::kBf16),
                    "unknown I/O dtype ", static_cast<int>(problem.io));
    VOLUP_REFUSE_IF(static_cast<int>(problem.precision) > static_cast<int>(Precision::kFp16),
                    "unknown precision ", static_cast<int>(problem.precision));
    VOLUP_REFUSE_IF(device.type != DeviceType::kCuda, "needs a CUDA device, got ",
                    name_of(device.type));
    VOLUP_REFUSE_IF(device.compute_capability < 80, "needs compute capability 8.0 or more, got ",
                    device.compute_capability / 10, ".", device.compute_capability % 10);
    VOLUP_REFUSE_IF(device.cudnn_version == 0, "needs cuDNN 9: ", device.cudnn_missing);
    VOLUP_REFUSE_IF(device.cudnn_version < 90000 || device.cudnn_version >= 100000,
                    "needs cuDNN 9, got version ", device.cudnn_version);
    for (const WrongVersions& wrong : kWrongVersions) {
      VOLUP_REFUSE_IF(device.cudnn_version >= wrong.first && device.cudnn_version <= wrong.last,
                      "cuDNN version ", device.cudnn_version, ": ", wrong.why);
    }
    VOLUP_REFUSE_IF(!problem.weights.finite,
                    "needs finite weights: cuDNN may multiply them by padding");
    for (size_t axis = 0; axis < 3; ++axis) {
      // A convolution rounds its output size down; only then does it come back to the input's.
      const int64_t extra = g.output_padding[axis] + g.padding_begin[axis] - g.padding_end[axis];
      VOLUP_REFUSE_IF(extra < 0 || extra >= g.stride[axis],
                      "needs 0 <= output_padding + padding_begin - padding_end < stride on each "
                      "axis, got ",
                      extra, " with stride ", g.stride[axis]);
      VOLUP_REFUSE_IF(std::max({g.kernel[axis], g.stride[axis], g.dilation[axis],
                                g.padding_begin[axis]}) > kInt32Limit,
                      "needs a geometry below 2^31, got kernel ", g.kernel, " stride ", g.stride,
                      " dilation ", g.dilation);
    }
    VOLUP_REFUSE_IF(g.in_channels * plane_of(problem.input) > kInt32Limit ||
                        g.out_channels * plane_of(problem.conv_output) > kInt32Limit ||
                        g.weight_count() > kInt32Limit,
                    "needs samples and weights below 2^31 elements");
    return {};
  }

  std::string choose(const Problem& problem, const DeviceProperties&) const override {
    const auto plan = make_plan(problem, std::numeric_limits<size_t>::max());
    return cat("algorithm 1, ", problem.precision == Precision::kFp32 ? "FMA" : "TF32",
               " math, at most ", plan.ok() ? plan->samples : 0, " samples at a time");
  }

  Result<size_t> workspace_bytes(const Problem& problem, const DeviceProperties&,
                                 size_t limit) const override {
    VOLUP_ASSIGN_OR_RETURN(const Plan plan, make_plan(problem, limit));
    return static_cast<size_t>(plan.bytes());
  }

  Result<std::vector<std::byte>> pack(const Model& model, const Problem& problem,
                                      const DeviceProperties&) const override {
    const ConvTranspose3d& g = problem.geometry;
    const auto weights = static_cast<size_t>(g.weight_count());
    const auto channels = static_cast<size_t>(g.out_channels);
    std::vector<std::byte> bytes((weights + channels) * sizeof(float));
    std::memcpy(bytes.data(), model.weight(), weights * sizeof(float));
    if (model.bias() != nullptr) {
      std::memcpy(bytes.data() + weights * sizeof(float), model.bias(), channels * sizeof(float));
    }
    return bytes;
  }

  Result<std::unique_ptr<Launch>> prepare(const Problem& problem, const DeviceProperties& device,
                                          const PrepareArguments& arguments) const override {
    VOLUP_ASSIGN_OR_RETURN(const Plan plan, make_plan(problem, arguments.workspace_bytes));
    auto launch = std::make_unique<CudnnLaunch>(problem, device.index, plan, arguments);
    VOLUP_RETURN_IF_ERROR(launch->prepare());
    return std::unique_ptr<Launch>(std::move(launch));
  }
};

}  // namespace

const Kernel& cuda_cudnn_kernel() {
  static const CudnnKernel kKernel;
  return kKernel;
}

}  // namespace volup
