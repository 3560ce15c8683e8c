// SPDX-License-Identifier: Apache-2.0
//
// A session's work captured into a CUDA graph and replayed with new data: prepare once, capture one
// enqueue, then each replay is a single launch. The only example that sees CUDA's headers. It takes
// no file: the model is made from arrays.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <volup/volup.hpp>

namespace {

constexpr int kSkipped = 77;

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Values that differ from place to place and from one seed to the next.
std::vector<float> values(std::int64_t count, int seed) {
  std::vector<float> filled(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < filled.size(); ++i) {
    filled[i] = std::sin(0.7f * static_cast<float>(i) + static_cast<float>(seed));
  }
  return filled;
}

volup::Model make_model() {
  volup_geometry geometry = volup::geometry();
  geometry.in_channels = 32;
  geometry.out_channels = 64;
  for (int axis = 0; axis < 3; ++axis) {
    geometry.kernel[axis] = 3;
    geometry.stride[axis] = 2;
    geometry.padding_begin[axis] = geometry.padding_end[axis] = 1;
    geometry.output_padding[axis] = 1;
  }
  return volup::Model(geometry, volup::epilogue(VOLUP_EPILOGUE_SOFTMAX_SIGMOID),
                      values(32 * 64 * 27, 1), values(64, 2));
}

int replay() {
  const volup::Model model = make_model();
  auto options = volup::defaults<volup_session_options>();
  options.device_type = VOLUP_DEVICE_CUDA;
  volup::Session session(model, options);
  const volup::Shape in = {2, 32, 4, 5, 6};
  const volup::Shape out = model.output_shape(in);
  const auto in_bytes = static_cast<std::size_t>(volup::element_count(in)) * sizeof(float);
  const auto out_bytes = static_cast<std::size_t>(volup::element_count(out)) * sizeof(float);

  void* x = nullptr;
  void* y = nullptr;
  cudaStream_t stream = nullptr;
  check_cuda(cudaMalloc(&x, in_bytes), "cudaMalloc");
  check_cuda(cudaMalloc(&y, out_bytes), "cudaMalloc");
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");

  session.prepare(in);  // all that allocates or waits happens here
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replayable = nullptr;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin capture");
  session.enqueue(volup::cuda_tensor(x, in), nullptr, volup::cuda_tensor(y, out), stream);
  check_cuda(cudaStreamEndCapture(stream, &graph), "end capture");
  check_cuda(cudaGraphInstantiate(&replayable, graph, 0), "cudaGraphInstantiate");

  int wrong = 0;
  for (int round = 0; round < 3; ++round) {
    const std::vector<float> host_x = values(volup::element_count(in), 10 + round);
    std::vector<float> replayed(out_bytes / sizeof(float));
    std::vector<float> computed(replayed.size());
    check_cuda(cudaMemcpyAsync(x, host_x.data(), in_bytes, cudaMemcpyHostToDevice, stream), "copy");
    check_cuda(cudaGraphLaunch(replayable, stream), "cudaGraphLaunch");
    check_cuda(cudaMemcpyAsync(replayed.data(), y, out_bytes, cudaMemcpyDeviceToHost, stream),
               "copy");
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    session.run(host_x.data(), in, nullptr, computed.data(), out);
    wrong += replayed != computed;  // the same kernel on the same data: the same bits
    std::printf("replay %d: y[0] = %g, %s\n", round, replayed[0],
                replayed == computed ? "the bits of run" : "OTHER bits than run");
  }
  check_cuda(cudaGraphExecDestroy(replayable), "cudaGraphExecDestroy");
  check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  check_cuda(cudaFree(x), "cudaFree");
  check_cuda(cudaFree(y), "cudaFree");
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() try {
  if (volup::device_count(VOLUP_DEVICE_CUDA) == 0) {
    std::printf("SKIPPED (no CUDA device of compute capability 8.0 or more)\n");
    return kSkipped;
  }
  return replay();
} catch (const volup::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
