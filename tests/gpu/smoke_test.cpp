// SPDX-License-Identifier: Apache-2.0
//
// Every CUDA kernel once in each format and epilogue, on problems small enough for a memory checker
// (tools/dev.sh gpu memcheck runs these alone). Odd widths, tails of every tile, misaligned bases.
#include "gpu_test.h"

namespace volup::test {
namespace {

class Smoke : public GpuTest {};

constexpr const char* kShapes[] = {
    "n2 ci3 co16 i3x5x7 k3 s2 p1",
    "n1 ci32 co64 i2x9x11 k3 s2 p1 op1",
    "n1 ci20 co40 i3x5x24 k3 s2 p1 op1",  // a tile of two squares and half of one
    "n1 ci20 co24 i3x4x5 k4x3x5 s2x1x3 p1x0x2",
    "n2 ci20 co40 i1x1x16 k3 s2 p1 op0x0x1",  // phases along D and H without outputs
    "n1 ci9 co100 i2x4x5 k3 s2 p1",
};

constexpr const char* kFormats[] = {"fp32", "tf32", "fp16 io=fp16", "bf16 io=bf16"};

TEST_F(Smoke, EveryKernelInEveryFormat) {
  for (const char letter : {'I', 'A', 'B', 'C'}) {
    for (const char* shape : kShapes) {
      for (const char* format : kFormats) {
        Case c = random_case(problem_of(cat(letter, " ", shape, " ", format)), DataSet::kZeroMean,
                             17, 3.0);
        c.model();
        const double chain = chain_maximum(c);
        const size_t element = element_size(c.problem.io);
        for (const Kernel* kernel : kernels_for(c.problem)) {
          VOLUP_TRACE(*kernel, c);
          for (const size_t offset : {size_t{0}, element}) {
            const auto out = run_case(*kernel, c, {.x_offset = offset, .out_offset = offset});
            if (!out) continue;
            const auto report = check_outputs(c, values_of(c.problem.io, *out), chain);
            EXPECT_TRUE(report.ok()) << report.text;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace volup::test
