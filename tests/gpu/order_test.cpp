// SPDX-License-Identifier: Apache-2.0
//
// Work on one stream keeps its order, though kernels may start before the one ahead of them ends:
// what a launch reads and writes waits for whatever came before.
#include "gpu_test.h"
#include "late_copy.h"

namespace volup::test {
namespace {

class Order : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    if (stream_ == nullptr) return;
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  // Of few tiles and of many, so that blocks find room beside the kernel ahead or do not.
  static constexpr const char* kProblems[] = {
      "A n2 ci3 co16 i4x5x9 k3 s2 p1 fp32",
      "A n40 ci3 co16 i8x32x32 k3 s2 p1 tf32",
      "B n2 ci32 co64 i3x4x8 k3 s2 p1 op1 fp32",
      "B n2 ci32 co64 i3x4x8 k3 s2 p1 op1 tf32",
      "B n8 ci32 co64 i8x16x16 k3 s2 p1 op1 fp32",
      "B n8 ci32 co64 i8x16x16 k3 s2 p1 op1 fp16 io=fp16",
      "C n2 ci32 co64 i3x4x8 k3 s2 p1 op1 fp32",
      "C n2 ci32 co64 i3x5x7 k3 s2 p1 op1 tf32",
      "C n16 ci32 co64 i8x16x16 k3 s2 p1 op1 fp32",
      "C n16 ci32 co64 i8x16x16 k3 s2 p1 op1 bf16 io=bf16",
      "I n2 ci40 co72 i4x6x9 k3 s1 p1 fp32",
  };

  cudaStream_t stream_ = nullptr;
};

// x and add are written, and what was in out is read, by a kernel that lets the launch start early.
TEST_F(Order, BehindAKernelThatLetsOthersStartEarly) {
  for (const char* text : kProblems) {
    Case c = random_case(problem_of(text), DataSet::kZeroMean, 61, 2.0);
    const DType io = c.problem.io;
    for (const Kernel* kernel : kernels_for(c.problem)) {
      VOLUP_TRACE(*kernel, c);
      // Also loads all kernels that are launched, which would take longer than the late one does.
      const auto expected = run_case(*kernel, c);
      const Prepared prepared(*kernel, c);
      if (!expected || !prepared.ok()) continue;
      const Memory given_x(bytes_of(io, c.x)), given_add(bytes_of(io, c.add));
      const Memory x(given_x.bytes()), add(given_add.bytes());
      const Memory out(expected->size());
      const Memory old(std::vector<std::byte>(out.bytes()));
      ASSERT_EQ(copy_late({}, stream_), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      ASSERT_EQ(copy_late({{x.data(), given_x.data(), x.bytes()},
                           {add.data(), given_add.data(), add.bytes()},
                           {old.data(), out.data(), out.bytes()}},
                          stream_),
                cudaSuccess);
      const Status status =
          prepared.run(x.data(), c.add.empty() ? nullptr : add.data(), out.data(), stream_);
      ASSERT_TRUE(status.ok()) << status.text();
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      EXPECT_EQ(out.read(), *expected);
      EXPECT_EQ(old.read(), std::vector<std::byte>(out.bytes(), std::byte{0xff}));
    }
  }
}

// Launches in a row, of data that different engines take in turn and of one workspace; where
// something is added, it is what the launch before left, two times out of three. One by one, queued
// behind a late kernel, and captured in one graph.
TEST_F(Order, LaunchesInARow) {
  constexpr int kRounds = 6;
  for (const char* text : kProblems) {
    Case c = random_case(problem_of(text), DataSet::kZeroMean, 62, 2.0);
    Case wide = random_case(c.problem, DataSet::kWideExponents, 63, 2.0);
    const DType io = c.problem.io;
    for (const Kernel* kernel : kernels_for(c.problem)) {
      VOLUP_TRACE(*kernel, c);
      const Prepared prepared(*kernel, c);
      if (!prepared.ok()) continue;
      const Memory x[2] = {Memory(bytes_of(io, c.x)), Memory(bytes_of(io, wide.x))};
      const Memory add(bytes_of(io, c.add));
      const size_t bytes = static_cast<size_t>(count_of(c.problem.output)) * element_size(io);
      const size_t pitch = (bytes + 255) / 256 * 256;  // each round's output as aligned as any
      const Memory out(kRounds * pitch);
      const auto launch = [&](int i) {
        std::byte* to = out.data() + static_cast<size_t>(i) * pitch;
        const void* added = c.add.empty() ? nullptr : i % 3 == 0 ? add.data() : to - pitch;
        const Status status = prepared.run(x[i % 2].data(), added, to, stream_);
        ASSERT_TRUE(status.ok()) << status.text();
      };
      for (int i = 0; i < kRounds; ++i) {
        launch(i);
        ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      }
      const std::vector<std::byte> expected = out.read();

      out.poison();
      ASSERT_EQ(copy_late({}, stream_), cudaSuccess);
      for (int i = 0; i < kRounds; ++i) launch(i);
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      EXPECT_TRUE(out.read() == expected) << "in a row";

      out.poison();
      ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
      for (int i = 0; i < kRounds; ++i) launch(i);
      cudaGraph_t graph = nullptr;
      ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
      cudaGraphExec_t replay = nullptr;
      ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
      ASSERT_EQ(cudaGraphLaunch(replay, stream_), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      EXPECT_TRUE(out.read() == expected) << "in one graph";
      EXPECT_EQ(cudaGraphExecDestroy(replay), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
  }
}

}  // namespace
}  // namespace volup::test
