// SPDX-License-Identifier: Apache-2.0
//
// The precision contract of tests/contract.h for every CPU kernel and instruction set: logits on
// every data set, final outputs on logits with a wide spread.
#include "cpu_test.h"

namespace volup::test {
namespace {

struct Format {
  Precision precision;
  DType io;
};
constexpr Format kFormats[] = {
    {Precision::kFp32, DType::kFp32}, {Precision::kTf32, DType::kFp32},
    {Precision::kFp32, DType::kFp16}, {Precision::kFp16, DType::kFp16},
    {Precision::kBf16, DType::kBf16},
};

// The three reference geometries on small volumes, and sums as long as real networks have.
constexpr const char* kShapes[] = {
    "n2 ci3 co16 i5x9x17 k3 s2 p1",
    "n1 ci32 co64 i3x5x16 k3 s2 p1 op1",
    "n1 ci256 co24 i2x3x5 k4 s2 p1",
};

Problem problem_of_format(char letter, const std::string& shape, const Format& format) {
  return problem_of(cat(std::string(1, letter), " ", shape, " ", name_of(format.precision),
                        " io=", name_of(format.io)));
}

// How close each kernel came to its limits, a line per kernel, format and data set.
class Table {
 public:
  void add(const Target& target, const Format& format, std::string_view data, double maximum,
           double percentile) {
    auto& row = rows_[cat(target.name(), " ", name_of(format.precision), " io=", name_of(format.io),
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

TEST(Contract, Logits) {
  Table table;
  for (const char* shape : kShapes) {
    for (const Format& format : kFormats) {
      for (const DataSet set : kDataSets) {
        // Sums of it pass 65504, where a rounded operand decides between a number and infinity.
        if (set == DataSet::kWideExponents && format.precision == Precision::kFp16) continue;
        Case c = random_case(problem_of_format('I', shape, format), set, 7);
        c.model();
        for (const Target& target : targets_for(c.problem)) {
          VOLUP_TRACE(target, c);
          const auto report = check_logits(c, values_of(format.io, run_case(target, c)), 600);
          EXPECT_TRUE(report.ok) << report.text;
          const double factor = contract_factor(format.precision);
          table.add(target, format, name_of(set),
                    report.kernel.maximum / (factor * report.chain.maximum),
                    report.kernel.percentile / (factor * report.chain.percentile));
        }
      }
    }
  }
  table.print("logits");
}

TEST(Contract, Outputs) {
  Table table;
  for (const char letter : {'A', 'B', 'C'}) {
    for (const char* shape : kShapes) {
      for (const Format& format : kFormats) {
        for (const DataSet set : {DataSet::kZeroMean, DataSet::kTinyOutputChannels}) {
          for (const double spread : {1.0, 5.0}) {
            Case c = random_case(problem_of_format(letter, shape, format), set, 11, spread);
            c.model();
            constexpr int64_t kVoxels = 600;
            const double chain = chain_maximum(c, kVoxels);
            for (const Target& target : targets_for(c.problem)) {
              VOLUP_TRACE(target, c);
              const auto report =
                  check_outputs(c, values_of(format.io, run_case(target, c)), chain, kVoxels);
              EXPECT_TRUE(report.ok()) << report.text;
              table.add(target, format, name_of(c.problem.epilogue.kind), report.worst,
                        report.worst);
            }
          }
        }
      }
    }
  }
  table.print("outputs");
}

TEST(Contract, ManyChannels) {
  for (const char letter : {'A', 'B', 'C'}) {
    for (const char* shape : {"n1 ci6 co700 i2x3x5 k3 s2 p1", "n2 ci4 co129 i2x3x9 k2 s2",
                              "n1 ci24 co60 i2x4x11 k3 s2 p1 g12"}) {
      Case c =
          random_case(problem_of_format(letter, shape, kFormats[0]), DataSet::kZeroMean, 13, 5.0);
      c.model();
      const double chain = chain_maximum(c, 300);
      for (const Target& target : targets_for(c.problem)) {
        VOLUP_TRACE(target, c);
        const auto report =
            check_outputs(c, values_of(DType::kFp32, run_case(target, c)), chain, 300);
        EXPECT_TRUE(report.ok()) << report.text;
      }
    }
  }
}

// Constants of the epilogue that are not the reference models'.
TEST(Contract, OtherConstants) {
  for (const char letter : {'A', 'C'}) {
    Case c = random_case(problem_of_format(letter, kShapes[0], kFormats[0]), DataSet::kZeroMean, 17,
                         3.0);
    Epilogue& e = c.problem.epilogue;
    e.shift = -1.5f;
    e.divisor = -2.25f;
    e.subtract = 0.125f;
    e.clamp_min = -0.75f;
    e.clamp_max = 2.5f;
    c.model();
    const double chain = chain_maximum(c, 600);
    for (const Target& target : targets_for(c.problem)) {
      VOLUP_TRACE(target, c);
      const auto report =
          check_outputs(c, values_of(DType::kFp32, run_case(target, c)), chain, 600);
      EXPECT_TRUE(report.ok()) << report.text;
    }
  }
}

}  // namespace
}  // namespace volup::test
