// SPDX-License-Identifier: Apache-2.0
//
// Sizes at which index arithmetic of 32 bits, grids and other libraries broke. Outputs are checked
// at sampled positions, and all of them for having been written.
#include "gpu_test.h"

namespace volup::test {
namespace {

class Limits : public GpuTest {
 protected:
  void TearDown() override { static_cast<void>(cudaGetLastError()); }
};

// Values that repeat with a prime period: quick to make, yet no two samples or rows are alike.
void fill_periodic(std::vector<float>& values, uint32_t seed, bool integers) {
  constexpr size_t kPeriod = 1000003;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> pool(std::min(values.size(), kPeriod));
  for (float& value : pool) {
    value = integers ? static_cast<float>(static_cast<int>(random() % 17) - 8) : normal(random);
  }
  for (size_t at = 0; at < values.size(); at += kPeriod) {
    const size_t count = std::min(kPeriod, values.size() - at);
    std::copy_n(pool.begin(), count, values.begin() + static_cast<ptrdiff_t>(at));
  }
}

struct SampledShape {
  const char* problem;
  int64_t voxels;
};

// Shapes other libraries got wrong or refused, whole.
TEST_F(Limits, ReportedShapes) {
  for (const auto& [text, count] : {
           SampledShape{"I n1 ci64 co128 i8x128x172 k5 s2 p2 op1 fp32", 1500},
           SampledShape{"I n1 ci8 co1 i128x512x512 k4 s2 p1 fp32", 60000},
           SampledShape{"I n4 ci64 co32 i32x16x16 k1x3x3 s1x2x2 p0x1x1 fp32", 20000},
           SampledShape{"I n1 ci32 co16 i32x32x10 k4 s2 p1 fp32", 20000},
           SampledShape{"I n1 ci1 co1 i1x1x70000000 k1x1x3 s1x1x2 p0x0x1 fp32", 60000},
       }) {
    Case c = empty_case(problem_of(text), "periodic integers");
    fill_periodic(c.x, 41, true);
    fill_periodic(c.weight, 42, true);
    fill_periodic(c.bias, 43, true);
    c.model();
    const Operands operands = operands_of(c);
    const auto voxels = voxels_of(c.problem.output, count);
    std::vector<VoxelLogits> wanted(voxels.size());
    for_each_index(static_cast<int64_t>(voxels.size()), [&](int64_t v) {
      wanted[static_cast<size_t>(v)] = logits_at(c, operands, voxels[static_cast<size_t>(v)]);
    });
    for (const Kernel* kernel : kernels_for(c.problem)) {
      VOLUP_TRACE(*kernel, c);
      const auto out = run_case(*kernel, c);
      if (!out) continue;
      const auto got = values_of(c.problem.io, *out);
      for (size_t v = 0; v < voxels.size(); ++v) {
        for (size_t co = 0; co < wanted[v].exact.size(); ++co) {
          const size_t at = element_at(c.problem.output, voxels[v], static_cast<int64_t>(co));
          ASSERT_EQ(got[at], static_cast<float>(wanted[v].exact[co])) << "element " << at;
        }
      }
    }
  }
}

// Runs a large batch and judges a few of its samples.
void check_batch(const std::string& text, const std::vector<int64_t>& samples) {
  Case c = empty_case(problem_of(text), "periodic");
  const Problem& problem = c.problem;
  const bool adds = takes_add(problem.epilogue.kind);
  c.add.clear();
  c.add.shrink_to_fit();
  fill_periodic(c.x, 44, false);
  {
    // Weights and bias of a small problem of the same geometry.
    Shape5 one = problem.input;
    one[0] = 1;
    const auto small = make_problem(problem.geometry, problem.epilogue, one);
    const Case drawn = random_case(*small, DataSet::kZeroMean, 45, 3.0);
    c.weight = drawn.weight;
    c.bias = drawn.bias;
    c.add = drawn.add;  // the same for every sample
  }
  const auto batch = static_cast<size_t>(problem.input[0]);
  const size_t out_sample = static_cast<size_t>(count_of(problem.output)) / batch;
  const size_t in_sample = c.x.size() / batch;
  c.model();
  const Memory x(bytes_of(problem.io, c.x));
  const Memory add(adds ? batch * out_sample * sizeof(float) : 0);
  if (adds) {
    for (size_t n = 0; n < batch; ++n) {
      ASSERT_EQ(cudaMemcpy(add.data() + n * out_sample * sizeof(float), c.add.data(),
                           out_sample * sizeof(float), cudaMemcpyHostToDevice),
                cudaSuccess);
    }
  }
  const Memory out(batch * out_sample * sizeof(float));
  for (const Kernel* kernel : kernels_for(problem)) {
    VOLUP_TRACE(*kernel, c);
    const Prepared prepared(*kernel, c);
    if (!prepared.ok()) continue;
    out.poison();
    const Status status = prepared.run(x.data(), adds ? add.data() : nullptr, out.data());
    ASSERT_TRUE(status.ok()) << status.text();
    const Status finished = (*gpu())->synchronize();
    ASSERT_TRUE(finished.ok()) << finished.text();
    EXPECT_EQ(count_poison(out.data(), count_of(problem.output), sizeof(float)), 0);
    out.expect_guards();
    for (const int64_t n : samples) {
      Case single = c;
      Shape5 one = problem.input;
      one[0] = 1;
      single.problem =
          *make_problem(problem.geometry, problem.epilogue, one, problem.precision, problem.io);
      const auto first = c.x.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(n) * in_sample);
      single.x.assign(first, first + static_cast<ptrdiff_t>(in_sample));
      const auto bytes =
          out.read(static_cast<size_t>(n) * out_sample * sizeof(float), out_sample * sizeof(float));
      const auto report =
          check_outputs(single, values_of(DType::kFp32, bytes), chain_maximum(single, 300), 300);
      EXPECT_TRUE(report.ok()) << "sample " << n << ": " << report.text;
    }
  }
}

// 2^31 outputs and one sample more or less.
TEST_F(Limits, SoftmaxAtTwoToThe31Outputs) {
  for (const int n : {255, 256, 257}) {
    for (const char* precision : {"fp32", "tf32"}) {
      check_batch(cat("B n", n, " ci32 co64 i16x32x32 k3 s2 p1 op1 ", precision),
                  {0, 127, 128, n - 2, n - 1});
    }
  }
}

TEST_F(Limits, HardswishAtTwoToThe31Outputs) {
  check_batch("C n512 ci32 co64 i16x16x16 k3 s2 p1 op1 fp32", {0, 255, 256, 511});
  check_batch("C n1025 ci32 co64 i16x16x16 k3 s2 p1 op1 fp32", {0, 511, 1023, 1024});
  check_batch("C n1025 ci32 co64 i16x16x16 k3 s2 p1 op1 tf32", {0, 511, 1023, 1024});
}

// The logits pass 2^31 although the output does not.
TEST_F(Limits, LogsumexpOfTwoToThe31Logits) {
  check_batch("A n1101 ci3 co16 i16x32x32 k3 s2 p1 fp32", {0, 544, 1090, 1100});
}

}  // namespace
}  // namespace volup::test
