// SPDX-License-Identifier: Apache-2.0
//
// What the CPU tests share: every CPU kernel with every instruction set of this machine, guarded
// memory, and a kernel prepared for a case. A kernel is held to all tests from the moment it is
// listed.
#ifndef VOLUP_TESTS_CPU_CPU_TEST_H_
#define VOLUP_TESTS_CPU_CPU_TEST_H_

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract.h"
#include "cpu/fused_simd.h"
#include "cpu/thread_pool.h"
#include "device.h"
#include "kernel.h"

namespace volup::test {

inline constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// A CPU with so many threads; opened once a count.
inline Device& cpu(int threads) {
  static std::map<int, std::unique_ptr<Device>> devices;
  auto& device = devices[threads];
  if (device == nullptr) device = std::move(*open_cpu_device(threads));
  return *device;
}

struct RunOptions {
  int threads = 2;
  size_t x_offset = 0;  // bytes past alignment
  size_t out_offset = 0;
  size_t limit = kNoLimit;
  size_t last_level_cache_bytes = 0;  // 0: this machine's
};

// A kernel with an instruction set.
struct Target {
  const Kernel* kernel;
  CpuIsa isa;

  DeviceProperties properties(const RunOptions& options = {}) const {
    DeviceProperties p = cpu(options.threads).properties();
    p.isa = isa;
    if (options.last_level_cache_bytes != 0) {
      p.last_level_cache_bytes = options.last_level_cache_bytes;
    }
    return p;
  }
  std::string name() const { return cat(kernel->name(), " ", fused_target(isa).name); }
};

// Those that take the problem. The reference knows no instruction sets.
inline std::vector<Target> targets_for(const Problem& problem) {
  std::vector<Target> targets;
  for (const Kernel* kernel : kernel_list()) {
    if (kernel->device() != DeviceType::kCpu) continue;
    for (int isa = 0; isa <= static_cast<int>(cpu(2).properties().isa); ++isa) {
      const Target target{kernel, static_cast<CpuIsa>(isa)};
      if (kernel->name() == "cpu/reference" && isa > 0) continue;
      if (!kernel->refuse(problem, target.properties())) targets.push_back(target);
    }
  }
  return targets;
}

inline Problem problem_of(const std::string& text) {
  auto problem = parse_problem(text);
  if (!problem.ok()) ADD_FAILURE() << "'" << text << "': " << problem.status().text();
  return problem.ok() ? *problem : Problem{};
}

inline std::vector<std::byte> bytes_of(DType io, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * element_size(io));
  for (size_t i = 0; i < values.size(); ++i) {
    store_element(io, bytes.data(), static_cast<int64_t>(i), values[i]);
  }
  return bytes;
}

inline std::vector<float> values_of(DType io, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / element_size(io));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = load_element(io, bytes.data(), static_cast<int64_t>(i));
  }
  return values;
}

// Memory full of poison (bytes of 0xff: a NaN in every format) with a guard on either side.
class Memory {
 public:
  // offset: bytes that data() lies past an address aligned to 256.
  explicit Memory(size_t bytes, size_t offset = 0) : bytes_(bytes), offset_(offset) {
    base_ = static_cast<std::byte*>(*cpu(1).allocate(total()));
    std::memset(base_, 0xff, total());
  }
  explicit Memory(const std::vector<std::byte>& content, size_t offset = 0)
      : Memory(content.size(), offset) {
    if (!content.empty()) std::memcpy(data(), content.data(), content.size());
  }
  ~Memory() { cpu(1).free(base_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return base_ + kGuard + offset_; }
  size_t bytes() const { return bytes_; }
  std::vector<std::byte> read() const { return {data(), data() + bytes_}; }

  void expect_guards(const char* what) const {
    const auto untouched = [](std::byte b) { return b == std::byte{0xff}; };
    EXPECT_TRUE(std::all_of(base_, data(), untouched)) << what << ": memory before it was written";
    EXPECT_TRUE(std::all_of(data() + bytes_, base_ + total(), untouched))
        << what << ": memory after it was written";
  }

 private:
  static constexpr size_t kGuard = 1024;
  size_t total() const { return 2 * kGuard + offset_ + bytes_; }

  size_t bytes_;
  size_t offset_;
  std::byte* base_;
};

// A kernel prepared for a case, with its packed weights and poisoned workspace.
class Prepared {
 public:
  Prepared(const Target& target, Case& c, const RunOptions& options = {})
      : threads_(cpu(options.threads).threads()) {
    prepare(target, c, options);
  }

  bool ok() const { return launch_ != nullptr; }
  size_t workspace_bytes() const { return workspace_->bytes(); }
  Status run(const void* x, const void* add, void* out) const {
    return launch_->run({.x = x, .add = add, .out = out, .threads = threads_});
  }
  void expect_guards() const { workspace_->expect_guards("workspace"); }

 private:
  void prepare(const Target& target, Case& c, const RunOptions& options) {
    const auto model = c.model();
    ASSERT_NE(model, nullptr);
    const DeviceProperties device = target.properties(options);
    const auto packed = target.kernel->pack(*model, c.problem, device);
    ASSERT_TRUE(packed.ok()) << packed.status().text();
    packed_ = std::make_unique<Memory>(*packed);
    const auto bytes = target.kernel->workspace_bytes(c.problem, device, options.limit);
    ASSERT_TRUE(bytes.ok()) << bytes.status().text();
    ASSERT_LE(*bytes, options.limit);
    workspace_ = std::make_unique<Memory>(*bytes);
    auto launch = target.kernel->prepare(
        c.problem, device,
        {.packed = packed_->data(), .workspace = workspace_->data(), .workspace_bytes = *bytes});
    ASSERT_TRUE(launch.ok()) << launch.status().text();
    launch_ = std::move(*launch);
  }

  ThreadPool* threads_;
  std::unique_ptr<Memory> packed_;
  std::unique_ptr<Memory> workspace_;
  std::unique_ptr<Launch> launch_;
};

// Prepares and runs once; the output's bytes. Fails the test on touched guards.
inline std::vector<std::byte> run_case(const Target& target, Case& c,
                                       const RunOptions& options = {}) {
  const DType io = c.problem.io;
  const Prepared prepared(target, c, options);
  const auto outputs = count_of(c.problem.output);
  const Memory out(static_cast<size_t>(outputs) * element_size(io), options.out_offset);
  if (!prepared.ok()) return out.read();
  const Memory x(bytes_of(io, c.x), options.x_offset);
  const Memory add(bytes_of(io, c.add), options.x_offset);
  const Status status = prepared.run(x.data(), c.add.empty() ? nullptr : add.data(), out.data());
  EXPECT_TRUE(status.ok()) << status.text();
  out.expect_guards("out");
  prepared.expect_guards();
  return out.read();
}

inline std::string current_test() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return info == nullptr ? std::string() : cat(info->test_suite_name(), ".", info->name());
}

}  // namespace volup::test

// Says which kernel and case a failure belongs to.
#define VOLUP_TRACE(target, c)                                                  \
  SCOPED_TRACE(::volup::cat((target).name(), " on ", (c).name, "; rerun with ", \
                            "--gtest_filter=", ::volup::test::current_test()))

#endif  // VOLUP_TESTS_CPU_CPU_TEST_H_
