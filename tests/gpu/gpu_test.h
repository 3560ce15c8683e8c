// SPDX-License-Identifier: Apache-2.0
//
// What the GPU tests share: the device, guarded device memory, and a kernel prepared for a case.
// Tests walk every CUDA kernel of the list that accepts a problem, so a kernel is held to all of
// them from the moment it is listed.
#ifndef VOLUP_TESTS_GPU_GPU_TEST_H_
#define VOLUP_TESTS_GPU_GPU_TEST_H_

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract.h"
#include "device.h"
#include "gpu_scan.h"
#include "kernel.h"

namespace volup::test {

// Device 0, opened once, or why there is none.
inline const Result<std::unique_ptr<Device>>& gpu() {
  static const auto kDevice = open_cuda_device(0);
  return kDevice;
}

// Skips without a GPU; else the device is current during the test.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!gpu().ok()) GTEST_SKIP() << gpu().status().text();
    scope_.emplace(device());
  }

  static Device& device() { return **gpu(); }

 private:
  std::optional<DeviceScope> scope_;
};

inline const DeviceProperties& properties() { return (*gpu())->properties(); }

// Kernels that take the problem, fallbacks included. VOLUP_TEST_KERNEL=NAME in the environment
// leaves that one alone.
inline std::vector<const Kernel*> kernels_for(const Problem& problem) {
  const char* only = std::getenv("VOLUP_TEST_KERNEL");
  std::vector<const Kernel*> kernels;
  for (const Kernel* kernel : kernel_list()) {
    if (only != nullptr && kernel->name() != only) continue;
    if (kernel->device() == DeviceType::kCuda && !kernel->refuse(problem, properties())) {
      kernels.push_back(kernel);
    }
  }
  return kernels;
}

// cuDNN says only when asked on the device that it has no algorithm that obeys the contract; no
// kernel of volup's own may do so.
inline bool may_decline_late(const Kernel& kernel) { return kernel.name() == "cuda/cudnn"; }

inline Problem problem_of(const std::string& text) {
  auto problem = parse_problem(text);
  if (!problem.ok()) ADD_FAILURE() << "'" << text << "': " << problem.status().text();
  return problem.ok() ? *problem : Problem{};
}

inline std::vector<std::byte> bytes_of(DType io, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * element_size(io));
  if (io == DType::kFp32) {
    std::copy_n(reinterpret_cast<const std::byte*>(values.data()), bytes.size(), bytes.begin());
    return bytes;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    store_element(io, bytes.data(), static_cast<int64_t>(i), values[i]);
  }
  return bytes;
}

inline std::vector<float> values_of(DType io, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / element_size(io));
  if (io == DType::kFp32) {
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = load_element(io, bytes.data(), static_cast<int64_t>(i));
  }
  return values;
}

// Device memory full of poison (bytes of 0xff: a NaN in every format) with a guard on either side.
class Memory {
 public:
  // offset: bytes that data() lies past an address aligned to 256.
  explicit Memory(size_t bytes, size_t offset = 0) : bytes_(bytes), offset_(offset) {
    auto base = (*gpu())->allocate(2 * kGuard + offset + bytes);
    if (!base.ok()) {
      ADD_FAILURE() << base.status().text();
      return;
    }
    base_ = static_cast<std::byte*>(*base);
    poison();
  }
  Memory(const std::vector<std::byte>& content, size_t offset = 0)
      : Memory(content.size(), offset) {
    write(content);
  }
  ~Memory() {
    if (base_ != nullptr) (*gpu())->free(base_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return base_ + kGuard + offset_; }
  size_t bytes() const { return bytes_; }

  void poison() const {
    EXPECT_EQ(cudaMemset(base_, 0xff, 2 * kGuard + offset_ + bytes_), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  void write(const std::vector<std::byte>& content) const {
    const Status status = (*gpu())->copy_in(data(), content.data(), content.size());
    EXPECT_TRUE(status.ok()) << status.text();
  }

  std::vector<std::byte> read(size_t offset, size_t bytes) const {
    std::vector<std::byte> content(bytes);
    const Status status = (*gpu())->copy_out(content.data(), data() + offset, bytes);
    EXPECT_TRUE(status.ok()) << status.text();
    return content;
  }
  std::vector<std::byte> read() const { return read(0, bytes_); }

  void expect_guards() const {
    for (const auto& [at, bytes] : {std::pair{base_, kGuard + offset_},
                                    std::pair{base_ + kGuard + offset_ + bytes_, kGuard}}) {
      std::vector<std::byte> guard(bytes);
      const Status status = (*gpu())->copy_out(guard.data(), at, bytes);
      EXPECT_TRUE(status.ok()) << status.text();
      EXPECT_TRUE(std::all_of(guard.begin(), guard.end(), [](std::byte b) {
        return b == std::byte{0xff};
      })) << "memory beside the output was written";
    }
  }

 private:
  static constexpr size_t kGuard = 1024;
  size_t bytes_;
  size_t offset_;
  std::byte* base_ = nullptr;
};

// A kernel prepared for a case, with its packed weights and workspace.
class Prepared {
 public:
  Prepared(const Kernel& kernel, Case& c, size_t limit = std::numeric_limits<size_t>::max())
      : problem_(c.problem) {
    const auto model = c.model();
    prepare(kernel, model, c.problem, limit);
  }

  bool ok() const { return launch_ != nullptr; }
  const Memory& workspace() const { return *workspace_; }
  size_t workspace_bytes() const { return workspace_ == nullptr ? 0 : workspace_->bytes(); }

  Status run(const void* x, const void* add, void* out, void* stream = nullptr) const {
    return launch_->run({.x = x, .add = add, .out = out, .stream = stream});
  }

 private:
  void prepare(const Kernel& kernel, const std::shared_ptr<const Model>& model,
               const Problem& problem, size_t limit) {
    ASSERT_NE(model, nullptr);
    const auto packed = kernel.pack(*model, problem, properties());
    ASSERT_TRUE(packed.ok()) << packed.status().text();
    packed_ = std::make_unique<Memory>(*packed);
    const auto bytes = kernel.workspace_bytes(problem, properties(), limit);
    ASSERT_TRUE(bytes.ok()) << bytes.status().text();
    ASSERT_LE(*bytes, limit);
    workspace_ = std::make_unique<Memory>(*bytes);
    auto launch = kernel.prepare(
        problem, properties(),
        {.packed = packed_->data(), .workspace = workspace_->data(), .workspace_bytes = *bytes});
    if (!launch.ok() && may_decline_late(kernel) &&
        launch.status().code() == VOLUP_STATUS_UNSUPPORTED) {
      std::printf("SKIPPED %s\n", launch.status().text().c_str());
      return;
    }
    ASSERT_TRUE(launch.ok()) << launch.status().text();
    launch_ = std::move(*launch);
  }

  Problem problem_;
  std::unique_ptr<Memory> packed_;
  std::unique_ptr<Memory> workspace_;
  std::unique_ptr<Launch> launch_;
};

struct RunOptions {
  size_t x_offset = 0;  // bytes past alignment
  size_t out_offset = 0;
  size_t limit = std::numeric_limits<size_t>::max();
};

// Prepares, runs once and waits; the output's bytes, or nothing where the kernel declined. Fails
// the test on unwritten outputs and touched guards.
inline std::optional<std::vector<std::byte>> run_case(const Kernel& kernel, Case& c,
                                                      const RunOptions& options = {}) {
  const DType io = c.problem.io;
  const Prepared prepared(kernel, c, options.limit);
  if (!prepared.ok()) return std::nullopt;
  const Memory x(bytes_of(io, c.x), options.x_offset);
  const Memory add(bytes_of(io, c.add), options.x_offset);
  const auto outputs = count_of(c.problem.output);
  const Memory out(static_cast<size_t>(outputs) * element_size(io), options.out_offset);
  const Status status = prepared.run(x.data(), c.add.empty() ? nullptr : add.data(), out.data());
  EXPECT_TRUE(status.ok()) << status.text();
  const Status finished = (*gpu())->synchronize();
  EXPECT_TRUE(finished.ok()) << finished.text();
  EXPECT_EQ(count_poison(out.data(), outputs, element_size(io)), 0) << "outputs were not written";
  out.expect_guards();
  x.expect_guards();
  return out.read();
}

}  // namespace volup::test

// Says which kernel and case a failure belongs to.
#define VOLUP_TRACE(kernel, c)                                                  \
  SCOPED_TRACE(::volup::cat((kernel).name(), " on ", (c).name, "; rerun with ", \
                            "--gtest_filter=", ::volup::test::current_test()))

namespace volup::test {
inline std::string current_test() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return info == nullptr ? std::string() : cat(info->test_suite_name(), ".", info->name());
}
}  // namespace volup::test

#endif  // VOLUP_TESTS_GPU_GPU_TEST_H_
