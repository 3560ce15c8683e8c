// SPDX-License-Identifier: Apache-2.0
//
// The precision contract of tests/contract.h for every CUDA kernel: logits on every data set, final
// outputs on logits with a wide spread.
#include <map>

#include "gpu_test.h"

namespace volup::test {
namespace {

class Contract : public GpuTest {};

struct Format {
  Precision precision;
  DType io;
};
constexpr Format kFormats[] = {
    {Precision::kFp32, DType::kFp32}, {Precision::kTf32, DType::kFp32},
    {Precision::kBf16, DType::kFp32}, {Precision::kFp32, DType::kFp16},
    {Precision::kFp16, DType::kFp16}, {Precision::kBf16, DType::kBf16},
};

// The three reference geometries on small volumes, sums as long as real networks have, and outputs
// of one to four products.
constexpr const char* kShapes[] = {
    "n3 ci3 co16 i6x12x14 k3 s2 p1",    "n1 ci32 co64 i6x8x8 k3 s2 p1 op1",
    "n2 ci32 co64 i4x5x9 k3 s2 p1 op1", "n1 ci32 co64 i3x9x24 k3 s2 p1 op1",
    "n1 ci256 co32 i3x4x4 k4 s2 p1",    "n64 ci1 co10 i1x2x3 k3 s2 p1x1x0",
};

Problem make_problem_of(char letter, const std::string& shape, const Format& format) {
  return problem_of(cat(std::string(1, letter), " ", shape, " ", name_of(format.precision),
                        " io=", name_of(format.io)));
}

// How close each kernel came to its limits, a line per format and data set.
class Table {
 public:
  void add(const Kernel& kernel, const Format& format, std::string_view data, double maximum,
           double percentile) {
    auto& row = rows_[cat(kernel.name(), " ", name_of(format.precision), " io=", name_of(format.io),
                          ", ", data)];
    row.maximum = std::max(row.maximum, maximum);
    row.percentile = std::max(row.percentile, percentile);
  }
  void print(const char* what) const {
    for (const auto& [name, row] : rows_) {
      std::printf("%s %s: %.3f of the limit (99.9th percentile %.3f)\n", what, name.c_str(),
                  row.maximum, row.percentile);
    }
  }

 private:
  std::map<std::string, Ratios> rows_;
};

TEST_F(Contract, Logits) {
  Table table;
  for (const char* shape : kShapes) {
    for (const Format& format : kFormats) {
      for (const DataSet set : kDataSets) {
        Case c = random_case(make_problem_of('I', shape, format), set, 7);
        c.model();
        for (const Kernel* kernel : kernels_for(c.problem)) {
          VOLUP_TRACE(*kernel, c);
          const auto out = run_case(*kernel, c);
          if (!out) continue;
          const auto report = check_logits(c, values_of(format.io, *out));
          EXPECT_TRUE(report.ok) << report.text;
          table.add(*kernel, format, name_of(set), report.kernel.maximum / report.limit.maximum,
                    report.kernel.percentile / report.limit.percentile);
        }
      }
    }
  }
  table.print("logits");
}

TEST_F(Contract, Outputs) {
  Table table;
  for (const char letter : {'A', 'B', 'C'}) {
    for (const char* shape : kShapes) {
      for (const Format& format : kFormats) {
        for (const DataSet set : {DataSet::kZeroMean, DataSet::kTinyOutputChannels}) {
          Case c = random_case(make_problem_of(letter, shape, format), set, 11, 5.0);
          c.model();
          const double chain = chain_maximum(c);
          for (const Kernel* kernel : kernels_for(c.problem)) {
            VOLUP_TRACE(*kernel, c);
            const auto out = run_case(*kernel, c);
            if (!out) continue;
            const auto report = check_outputs(c, values_of(format.io, *out), chain);
            EXPECT_TRUE(report.ok()) << report.text;
            table.add(*kernel, format, name_of(c.problem.epilogue.kind), report.worst,
                      report.worst);
          }
        }
      }
    }
  }
  table.print("outputs");
}

// A channel count that no block holds at once.
TEST_F(Contract, ManyChannels) {
  for (const char letter : {'A', 'B', 'C'}) {
    for (const char* shape : {"n1 ci6 co700 i3x4x5 k3 s2 p1", "n2 ci10 co128 i3x4x5 k3 s2 p1",
                              "n2 ci4 co129 i3x3x3 k2 s2", "n1 ci24 co60 i3x4x5 k3 s2 p1 g12"}) {
      Case c =
          random_case(make_problem_of(letter, shape, kFormats[0]), DataSet::kZeroMean, 13, 5.0);
      c.model();
      const double chain = chain_maximum(c);
      for (const Kernel* kernel : kernels_for(c.problem)) {
        VOLUP_TRACE(*kernel, c);
        const auto out = run_case(*kernel, c);
        if (!out) continue;
        const auto report = check_outputs(c, values_of(DType::kFp32, *out), chain);
        EXPECT_TRUE(report.ok()) << report.text;
      }
    }
  }
}

// The data above must be able to tell: products of TF32 class, judged as fp32, fail it.
TEST(ContractData, Tf32ProductsFailTheFp32Contract) {
  for (const char letter : {'A', 'B', 'C'}) {
    const Format tf32{Precision::kTf32, DType::kFp32};
    Case c = random_case(make_problem_of(letter, kShapes[letter == 'A' ? 0 : 1], tf32),
                         DataSet::kZeroMean, 11, 5.0);
    const Operands rounded = operands_of(c);
    std::vector<float> out(static_cast<size_t>(count_of(c.problem.output)));
    for (const auto& voxel : voxels_of(c.problem.conv_output, int64_t{1} << 40)) {
      const VoxelLogits logits = logits_at(c, rounded, voxel);
      const std::vector<double> values(logits.chain.begin(), logits.chain.end());
      const VoxelOutput made =
          output_of(c.problem, values, std::vector<double>(values.size()), [&](int64_t channel) {
            return double{c.add[element_at(c.problem.output, voxel, channel)]};
          });
      for (size_t channel = 0; channel < made.value.size(); ++channel) {
        out[element_at(c.problem.output, voxel, static_cast<int64_t>(channel))] =
            static_cast<float>(made.value[channel]);
      }
    }
    c.problem.precision = Precision::kFp32;
    EXPECT_FALSE(check_outputs(c, out, chain_maximum(c)).ok()) << c.name;
  }
}

}  // namespace
}  // namespace volup::test
