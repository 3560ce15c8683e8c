// SPDX-License-Identifier: Apache-2.0
//
// A launch is captured into a CUDA graph in global mode right after prepare, and replayed with new
// data in the same places.
#include "gpu_test.h"

namespace volup::test {
namespace {

class Capture : public GpuTest {};

TEST_F(Capture, ReplayWithNewData) {
  for (const char* text :
       {"I n2 ci3 co16 i4x5x9 k3 s2 p1 fp32", "A n2 ci3 co16 i4x5x9 k3 s2 p1 fp32",
        "A n2 ci3 co16 i4x5x9 k3 s2 p1 tf32", "B n2 ci32 co64 i3x4x8 k3 s2 p1 op1 fp32",
        "B n2 ci32 co64 i3x4x8 k3 s2 p1 op1 tf32", "C n2 ci32 co64 i3x4x8 k3 s2 p1 op1 fp32",
        "C n2 ci32 co64 i3x4x8 k3 s2 p1 op1 fp16 io=fp16",
        "B n64 ci32 co64 i4x16x16 k3 s2 p1 op1 fp16 io=fp16",
        "C n64 ci32 co64 i4x16x16 k3 s2 p1 op1 tf32",
        "C n2 ci32 co64 i3x4x8 k3 s2 p1 op1 bf16 io=bf16",
        "B n1 ci6 co300 i3x4x5 k3x2x1 s2 p1x0x0 g2 fp32"}) {
    Case c = random_case(problem_of(text), DataSet::kZeroMean, 51, 2.0);
    Case fresh = random_case(c.problem, DataSet::kZeroMean, 52, 2.0);
    fresh.weight = c.weight;
    fresh.bias = c.bias;
    Case wide = random_case(c.problem, DataSet::kWideExponents, 53, 2.0);
    wide.weight = c.weight;
    wide.bias = c.bias;
    c.model();
    const DType io = c.problem.io;
    for (const Kernel* kernel : kernels_for(c.problem)) {
      VOLUP_TRACE(*kernel, c);
      const Memory x(bytes_of(io, c.x));
      const Memory add(bytes_of(io, c.add));
      const Memory out(static_cast<size_t>(count_of(c.problem.output)) * element_size(io));
      cudaStream_t stream = nullptr;
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
      const Prepared prepared(*kernel, c);
      if (prepared.ok()) {
        ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
        // What is not a kernel may come first.
        ASSERT_EQ(cudaMemsetAsync(out.data(), 0xff, out.bytes(), stream), cudaSuccess);
        const Status status =
            prepared.run(x.data(), c.add.empty() ? nullptr : add.data(), out.data(), stream);
        cudaGraph_t graph = nullptr;
        const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
        ASSERT_TRUE(status.ok()) << status.text();
        ASSERT_EQ(ended, cudaSuccess) << cudaGetErrorString(ended);
        cudaGraphExec_t replay = nullptr;
        ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
        for (Case* data : {&c, &wide, &fresh}) {
          x.write(bytes_of(io, data->x));
          add.write(bytes_of(io, data->add));
          out.poison();
          ASSERT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
          ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
          EXPECT_EQ(out.read(), run_case(*kernel, *data));
        }
        EXPECT_EQ(cudaGraphExecDestroy(replay), cudaSuccess);
        EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
      }
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    }
  }
}

}  // namespace
}  // namespace volup::test
