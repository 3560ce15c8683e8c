// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device: what it says of itself, how it fails, and that the caller's context comes back.
#include <cuda.h>

#include <thread>

#include "gpu_test.h"

namespace volup::test {
namespace {

// What the driver holds current on this thread; null where nothing is.
CUcontext current_context() {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &address, 12000, cudaEnableDefault,
                                             &found),
            cudaSuccess);
#else
  EXPECT_EQ(cudaGetDriverEntryPoint("cuCtxGetCurrent", &address, cudaEnableDefault, &found),
            cudaSuccess);
#endif
  CUcontext context = nullptr;
  EXPECT_EQ(reinterpret_cast<decltype(&cuCtxGetCurrent)>(address)(&context), CUDA_SUCCESS);
  return context;
}

TEST(CudaDevice, NoSuchIndex) {
  const auto device = open_cuda_device(1000);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), VOLUP_STATUS_UNAVAILABLE);
  EXPECT_FALSE(device.status().text().empty());
  EXPECT_FALSE(open_cuda_device(-1).ok());
}

TEST(CudaDevice, CountAgreesWithOpening) { EXPECT_EQ(cuda_device_count() > 0, gpu().ok()); }

class CudaDeviceTest : public GpuTest {};

TEST_F(CudaDeviceTest, Properties) {
  EXPECT_EQ(properties().type, DeviceType::kCuda);
  EXPECT_GE(properties().compute_capability, 80);
  EXPECT_GT(properties().multiprocessors, 0);
  EXPECT_GE(properties().shared_memory_bytes, size_t{48} << 10);
  EXPECT_GT(properties().last_level_cache_bytes, 0u);
  EXPECT_FALSE(properties().name.empty());
  EXPECT_EQ(properties().cudnn_version == 0, !properties().cudnn_missing.empty());
}

TEST_F(CudaDeviceTest, OutOfMemoryHasWordsAndPasses) {
  const auto memory = device().allocate(size_t{1} << 50);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), VOLUP_STATUS_OUT_OF_MEMORY);
  EXPECT_NE(memory.status().text().find(cat(size_t{1} << 50)), std::string::npos);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the caller sees our error";
  EXPECT_TRUE(device().synchronize().ok());
}

TEST_F(CudaDeviceTest, AllocationsAreAligned) {
  for (const size_t bytes : {0, 1, 255, 257}) {
    const auto memory = device().allocate(bytes);
    ASSERT_TRUE(memory.ok());
    EXPECT_NE(*memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 256, 0u);
    device().free(*memory);
  }
}

TEST_F(CudaDeviceTest, TimesEachIteration) {
  const auto memory = device().allocate(size_t{64} << 20);
  ASSERT_TRUE(memory.ok());
  int calls = 0;
  const auto times = device().time(5, [&](int i, void* stream) {
    EXPECT_EQ(i, calls++);
    EXPECT_EQ(cudaMemsetAsync(*memory, i, size_t{64} << 20, static_cast<cudaStream_t>(stream)),
              cudaSuccess);
    return Status();
  });
  ASSERT_TRUE(times.ok()) << times.status().text();
  ASSERT_EQ(times->size(), 5u);
  for (const double ms : *times) EXPECT_GT(ms, 0);
  const auto failed = device().time(3, [](int, void*) { return unsupported("stop"); });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().text(), "stop");
  device().free(*memory);
}

TEST(CudaContext, NothingStaysNothing) {
  if (!gpu().ok()) GTEST_SKIP() << gpu().status().text();
  std::thread([] {
    const CUcontext before = current_context();
    {
      const DeviceScope scope(**gpu());
      EXPECT_NE(current_context(), nullptr);
      const auto memory = (*gpu())->allocate(256);
      ASSERT_TRUE(memory.ok());
      (*gpu())->free(*memory);
    }
    EXPECT_EQ(current_context(), before);
  }).join();
}

TEST(CudaContext, AnotherDeviceStaysCurrent) {
  if (!gpu().ok()) GTEST_SKIP() << gpu().status().text();
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(count - 1), cudaSuccess);
  const CUcontext before = current_context();
  {
    const DeviceScope scope(**gpu());
    EXPECT_FALSE((*gpu())->allocate(size_t{1} << 50).ok());
  }
  EXPECT_EQ(current_context(), before);
  int current = -1;
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, count - 1);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

}  // namespace
}  // namespace volup::test
