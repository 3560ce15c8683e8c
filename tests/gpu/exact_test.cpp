// SPDX-License-Identifier: Apache-2.0
//
// Integer data through the identity epilogue: whatever the precision, every kernel gives the exact
// result, bit for bit. Finds index faults; says nothing of precision.
#include "gpu_test.h"

namespace volup::test {
namespace {

class Exact : public GpuTest {};

constexpr const char* kShapes[] = {
    "n2 ci3 co16 i5x7x9 k3 s2 p1",
    "n5 ci3 co16 i4x32x32 k3 s2 p1",
    "n2 ci32 co64 i4x6x8 k3 s2 p1 op1",
    "n1 ci32 co64 i16x16x16 k3 s2 p1 op1",
    "n1 ci32 co64 i16x32x32 k3 s2 p1 op1",  // many tiles a multiprocessor
    "n3 ci32 co64 i3x11x33 k3 s2 p1 op1",
    "n2 ci32 co32 i3x17x33 k5 p4 d2",      // slabs that fill shared memory
    "n96 ci32 co8 i1x16x16 k3 s2 p1 op1",  // columns of one tile: many a block, few slabs at a time
    "n40 ci64 co8 i2x16x24 k3 s2 p1 op1",
    "n3 ci20 co40 i3x5x24 k3 s2 p1 op1",          // tiles that end in the middle, every way
    "n2 ci64 co72 i4x9x40 k3 s2 p1 op1",          // two chunks and two tiles of channels
    "n2 ci32 co64 i5x6x16 k5x3x4 s3x1x2 p2x1x1",  // three phases along D, one along H
    "n1 ci32 co16 i5x18x40 k3 p1",
    "n2 ci8 co64 i9x9x24 k3 s2 p1:0",
    "n2 ci32 co64 i5x8x12 k3 s2 p1",
    "n1 ci64 co32 i4x4x4 k4 s2 p1",
    "n2 ci64 co32 i6x8x8 k1x3x3 s1x2x2 p0x1x1",
    "n1 ci48 co24 i4x5x6 k2 s2",
    "n1 ci1 co1 i1 k1",
    "n7 ci5 co3 i2x3x5 k2 s2",
    "n2 ci16 co8 i6x5x4 k4 s2 p1",
    "n1 ci8 co8 i5 k5 s3 p2",
    "n1 ci64 co128 i3x4x5 k5 s2 p2 op1",
    "n1 ci4 co6 i5 k3 p1",
    "n1 ci4 co6 i5 k3 s2 p1 d2",   // phases without taps
    "n1 ci4 co4 i3 k1 s3 op2",     // positions without taps
    "n1 ci3 co5 i4 k3 p1 d3 op2",  // output padding below the dilation alone
    "n2 ci6 co9 i4 k3 s2 p1 g3",
    "n1 ci32 co32 i4 k3 s2 p1 op1 g32",
    "n1 ci4 co200 i3 k2 s2",
    "n2 ci3 co130 i4x3x5 k3 s2 p1:0",
    "n1 ci2 co3 i3x3x40 k9x1x3 s1x1x2 p0:3x0x2:1",
    "n1 ci2 co2 i1x1x1 k2x3x4 s5x6x7 op4x5x6",
    "n67 ci8 co8 i1x1x1 k2",
    "n1 ci13 co17 i1x1x101 k1x1x7 s1x1x4 p0x0x3",
};

struct Format {
  Precision precision;
  DType io;
};
constexpr Format kFormats[] = {
    {Precision::kFp32, DType::kFp32}, {Precision::kTf32, DType::kFp32},
    {Precision::kBf16, DType::kFp32}, {Precision::kFp32, DType::kFp16},
    {Precision::kFp16, DType::kFp16}, {Precision::kBf16, DType::kBf16},
};

void check_shape(const std::string& shape, const Format& format) {
  const Problem problem =
      problem_of(cat("I ", shape, " ", name_of(format.precision), " io=", name_of(format.io)));
  Case c = integer_case(problem, 1);
  const auto voxels = voxels_of(problem.conv_output, int64_t{1} << 40);
  const Operands operands = operands_of(c);
  std::vector<float> wanted(static_cast<size_t>(count_of(problem.output)));
  for_each_index(static_cast<int64_t>(voxels.size()), [&](int64_t v) {
    const auto& voxel = voxels[static_cast<size_t>(v)];
    const VoxelLogits logits = logits_at(c, operands, voxel);
    for (size_t co = 0; co < logits.exact.size(); ++co) {
      wanted[element_at(problem.output, voxel, static_cast<int64_t>(co))] =
          rounded_to(problem.io, logits.exact[co]);
    }
  });
  const auto zeros = std::count(wanted.begin(), wanted.end(), 0.0f);
  ASSERT_LT(zeros, static_cast<int64_t>(wanted.size()) / 2 + 1) << "too many zeros to trust";

  c.model();  // refusals may look at the weights
  for (const Kernel* kernel : kernels_for(c.problem)) {
    VOLUP_TRACE(*kernel, c);
    const auto out = run_case(*kernel, c);
    if (!out) continue;
    const auto got = values_of(problem.io, *out);
    int64_t wrong = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (got[i] == wanted[i]) continue;  // -0 and 0 are the same sum
      if (wrong++ == 0) {
        ADD_FAILURE() << "element " << i << ": got " << got[i] << ", need " << wanted[i];
      }
    }
    EXPECT_EQ(wrong, 0) << "of " << wanted.size() << " elements";
  }
}

TEST_F(Exact, EveryKernelOnEveryShape) {
  for (const char* shape : kShapes) {
    for (const Format& format : kFormats) check_shape(shape, format);
  }
}

TEST_F(Exact, SomeKernelTakesEveryShapeWithoutCudnn) {
  for (const char* shape : kShapes) {
    const auto kernels = kernels_for(problem_of(cat("I ", shape, " fp32")));
    EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(), [](const Kernel* kernel) {
      return kernel->name() != "cuda/cudnn";
    })) << shape;
  }
}

TEST_F(Exact, BatchesPastSixteenBits) {
  for (const int n : {65535, 65536, 65537}) {
    check_shape(cat("n", n, " ci3 co4 i1x1x1 k2 s2"), {Precision::kFp32, DType::kFp32});
    check_shape(cat("n", n, " ci32 co64 i1x1x1 k1"), {Precision::kFp32, DType::kFp32});
  }
}

}  // namespace
}  // namespace volup::test
