// SPDX-License-Identifier: Apache-2.0
//
// What each device would run, on a machine that has none of them. dispatch_golden.txt is the
// expected table; VOLUP_WRITE_GOLDEN=1 writes the present one over it, for review as a diff.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kernel.h"

namespace volup {
namespace {

struct NamedDevice {
  const char* name;
  DeviceProperties properties;
};

DeviceProperties cuda(int compute_capability, int multiprocessors, size_t shared_memory_kib,
                      size_t l2_mib, int64_t cudnn_version) {
  DeviceProperties p;
  p.type = DeviceType::kCuda;
  p.compute_capability = compute_capability;
  p.multiprocessors = multiprocessors;
  p.shared_memory_bytes = shared_memory_kib * 1024;
  p.last_level_cache_bytes = l2_mib << 20;
  p.cudnn_version = cudnn_version;
  if (cudnn_version == 0) p.cudnn_missing = "libcudnn.so.9 was not found";
  return p;
}

DeviceProperties cpu(CpuIsa isa, int threads) {
  DeviceProperties p;
  p.type = DeviceType::kCpu;
  p.isa = isa;
  p.threads = threads;
  p.last_level_cache_bytes = size_t{32} << 20;
  return p;
}

std::vector<NamedDevice> devices() {
  return {
      {"H200", cuda(90, 132, 227, 60, 91900)},
      {"H200, no cuDNN", cuda(90, 132, 227, 60, 0)},
      {"A100", cuda(80, 108, 163, 40, 91900)},
      {"L40S", cuda(89, 142, 99, 96, 91900)},
      {"B200", cuda(100, 148, 227, 126, 91900)},
      {"RTX 5090", cuda(120, 170, 99, 96, 91900)},
      {"CPU AVX-512, 2 threads", cpu(CpuIsa::kAvx512, 2)},
      {"CPU AVX2, 16 threads", cpu(CpuIsa::kAvx2, 16)},
      {"CPU portable, 1 thread", cpu(CpuIsa::kPortable, 1)},
  };
}

constexpr const char* kProblems[] = {
    "A n128 ci3 co16 i16x32x32 k3 s2 p1 fp32",
    "A n128 ci3 co16 i16x32x32 k3 s2 p1 tf32",
    "A n128 ci3 co16 i16x32x32 k3 s2 p1 fp16 io=fp16",
    "A n1 ci3 co16 i16x32x32 k3 s2 p1 fp32",
    "B n16 ci32 co64 i16x32x32 k3 s2 p1 op1 fp32",
    "B n16 ci32 co64 i16x32x32 k3 s2 p1 op1 tf32",
    "B n16 ci32 co64 i16x32x32 k3 s2 p1 op1 bf16 io=bf16",
    "B n1 ci32 co64 i16x32x32 k3 s2 p1 op1 fp32",
    "C n128 ci32 co64 i16x16x16 k3 s2 p1 op1 fp32",
    "C n128 ci32 co64 i16x16x16 k3 s2 p1 op1 tf32",
    "C n128 ci32 co64 i16x16x16 k3 s2 p1 op1 fp16 io=fp16",
    "C n1 ci32 co64 i16x16x16 k3 s2 p1 op1 fp32",
    "I n2 ci64 co128 i8x128x172 k5 s2 p2 op1 fp32",
    "I n1 ci8 co1 i128x512x512 k4 s2 p1 fp32",
    "B n4 ci64 co32 i4x16x16 k1x3x3 s1x2x2 p0x1x1 fp32",
    "B n2 ci8 co128 i8x8x8 k3 s2 p1 op1 fp32",
    "A n1 ci32 co100 i8x8x8 k3 s2 p1 tf32",
    "B n2 ci8 co256 i8x8x8 k3 s2 p1 op1 fp32",
    "C n2 ci8 co8 i8x8x8 k3 s2 p0:1 fp32",
    "C n2 ci8 co8 i5x6x7 k3 s2 p1 op1 d2 g4 fp32",
    "A n1 ci1 co1 i1x1x1 k1 fp32",
};

std::string present_table() {
  std::ostringstream table;
  for (const NamedDevice& device : devices()) {
#if !VOLUP_WITH_CUDA
    if (device.properties.type == DeviceType::kCuda) continue;
#endif
    table << device.name << "\n";
    for (const char* text : kProblems) {
      const auto problem = parse_problem(text);
      EXPECT_TRUE(problem.ok()) << text;
      const auto choice = choose_kernel(*problem, device.properties);
      EXPECT_TRUE(choice.ok()) << text << " on " << device.name << ": " << choice.status().text();
      if (!choice.ok()) continue;
      table << "  " << text << " -> " << choice->kernel->name() << ", "
            << choice->kernel->choose(*problem, device.properties) << "\n";
    }
  }
  return table.str();
}

TEST(Dispatch, IsTheGoldenTable) {
  const std::string path = VOLUP_TEST_GOLDEN_DIR "/dispatch_golden.txt";
  const std::string present = present_table();
  if (std::getenv("VOLUP_WRITE_GOLDEN") != nullptr) std::ofstream(path) << present;
  std::ifstream file(path);
  std::stringstream golden;
  golden << file.rdbuf();
  std::string expected = golden.str();
#if !VOLUP_WITH_CUDA
  expected.erase(0, expected.find("CPU"));
#endif
  EXPECT_EQ(present, expected);
}

TEST(Dispatch, EveryRefusalHasWordsAndEveryKernelIsAccountedFor) {
  for (const NamedDevice& device : devices()) {
#if !VOLUP_WITH_CUDA
    if (device.properties.type == DeviceType::kCuda) continue;
#endif
    size_t kernels = 0;
    for (const Kernel* kernel : kernel_list())
      kernels += kernel->device() == device.properties.type;
    for (const char* text : kProblems) {
      const auto choice = choose_kernel(*parse_problem(text), device.properties);
      ASSERT_TRUE(choice.ok());
      EXPECT_EQ(choice->refused.size() + 1, kernels) << text;
      for (const KernelRefusal& refusal : choice->refused) {
        EXPECT_GT(refusal.why.size(), 10u) << refusal.kernel << " on " << text;
      }
    }
  }
}

TEST(Dispatch, TheForcedKernelRunsOrSaysWhyNot) {
  const auto problem = parse_problem("A n1 ci3 co16 i4x4x4 k3 s2 p1 fp32");
  const DeviceProperties device = cpu(CpuIsa::kPortable, 1);
  const auto forced = choose_kernel(*problem, device, "cpu/reference");
  ASSERT_TRUE(forced.ok());
  EXPECT_EQ(forced->kernel->name(), "cpu/reference");
  const auto unknown = choose_kernel(*problem, device, "cpu/referense");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().text().find("cpu/reference"), std::string::npos);
}

TEST(Dispatch, NamesAreUniqueAndTellTheDevice) {
  std::vector<std::string> names;
  for (const Kernel* kernel : kernel_list()) {
    const std::string name(kernel->name());
    EXPECT_TRUE(name.starts_with(cat(name_of(kernel->device()), "/"))) << name;
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 0) << name;
    names.push_back(name);
  }
}

}  // namespace
}  // namespace volup
