// SPDX-License-Identifier: Apache-2.0
//
// The CPU as a Device: what it is (instruction set, threads, last-level cache), plain host memory,
// and the session's thread pool.
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "cpu/thread_pool.h"
#include "device.h"

namespace volup {
namespace {

constexpr size_t kAlignment = 256;
constexpr int kMaxThreads = 1024;

// __builtin_cpu_supports asks cpuid and XCR0, so an instruction set that the operating system does
// not save counts as absent.
CpuIsa detect_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // clang 14's builtin does not know f16c; the registers it uses are those of avx2.
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return CpuIsa::kAvx512;
  }
  if (avx2) return CpuIsa::kAvx2;
#endif
  return CpuIsa::kPortable;
}

std::string detect_name() {
#if defined(__x86_64__)
  unsigned int words[12] = {};
  for (unsigned int leaf = 0; leaf < 3; ++leaf) {
    unsigned int* part = words + 4 * leaf;
    if (__get_cpuid(0x80000002u + leaf, part, part + 1, part + 2, part + 3) == 0) return "CPU";
  }
  char text[sizeof(words) + 1] = {};
  std::memcpy(text, words, sizeof(words));
  std::string name = text;
  const size_t first = name.find_first_not_of(' ');
  const size_t last = name.find_last_not_of(std::string_view(" \0", 2));
  return first == std::string::npos ? "CPU" : name.substr(first, last - first + 1);
#else
  return "CPU";
#endif
}

int usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  // More CPUs than cpu_set_t has room for.
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<int>(std::min<long>(online, kMaxThreads)) : 1;
}

// Bytes of the largest cache that the system tells of for CPU 0; 0 where it tells nothing.
size_t last_level_cache_bytes() {
  size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(cat("/sys/devices/system/cpu/cpu0/cache/index", index, "/size"));
    std::string text;  // "32768K"
    if (!(file >> text)) break;
    size_t value = 0;
    const char* end = std::from_chars(text.data(), text.data() + text.size(), value).ptr;
    if (end != text.data() + text.size()) value *= *end == 'M' ? size_t{1} << 20 : size_t{1} << 10;
    largest = std::max(largest, value);
  }
#if defined(_SC_LEVEL3_CACHE_SIZE)
  if (largest == 0) {
    const long level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (level3 > 0) largest = static_cast<size_t>(level3);
  }
#endif
  return largest;
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : threads_(threads) {
    properties_.type = DeviceType::kCpu;
    properties_.name = detect_name();
    properties_.isa = detect_isa();
    properties_.threads = threads;
    properties_.last_level_cache_bytes = last_level_cache_bytes();
  }

  const DeviceProperties& properties() const override { return properties_; }
  ThreadPool* threads() const override { return &threads_; }

  Result<void*> allocate(size_t bytes) override {
    const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    void* memory = rounded < bytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
    if (memory == nullptr) {
      return Status(VOLUP_STATUS_OUT_OF_MEMORY,
                    cat("host memory: got none, need ", bytes, " bytes"));
    }
    return memory;
  }
  void free(void* memory) override { std::free(memory); }

  Status copy_in(void* destination, const void* source, size_t bytes) override {
    return copy(destination, source, bytes);
  }
  Status copy_out(void* destination, const void* source, size_t bytes) override {
    return copy(destination, source, bytes);
  }
  Status synchronize() override { return {}; }

  Result<std::vector<double>> time(int iterations,
                                   const std::function<Status(int, void*)>& work) override {
    using Clock = std::chrono::steady_clock;
    std::vector<double> milliseconds;
    for (int i = 0; i < iterations; ++i) {
      const Clock::time_point begin = Clock::now();
      VOLUP_RETURN_IF_ERROR(work(i, nullptr));
      milliseconds.push_back(
          std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
    return milliseconds;
  }

 private:
  static Status copy(void* destination, const void* source, size_t bytes) {
    if (bytes > 0) std::memcpy(destination, source, bytes);
    return {};
  }

  DeviceProperties properties_;
  mutable ThreadPool threads_;
};

}  // namespace

Result<std::unique_ptr<Device>> open_cpu_device(int threads) {
  if (threads < 0 || threads > kMaxThreads) {
    return invalid_argument("threads: got ", threads, ", need 0 to ", kMaxThreads,
                            " (0: every CPU this process may use)");
  }
  if (threads == 0) threads = std::min(usable_cpus(), kMaxThreads);
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(threads));
}

}  // namespace volup
