// SPDX-License-Identifier: Apache-2.0
//
// volup check: what passes, what fails and how it says so: limits, NaN, infinity, overflow, shapes.
// Expected values are made from the tool's own result, so each test knows the answer exactly.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor_file.h"
#include "tool_runner.h"

namespace volup::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

const fs::path kLse = models_dir() / "logsumexp_swish_clamp.h5";
const fs::path kLseIo = models_dir() / "logsumexp_swish_clamp.io.h5";
const fs::path kAdd = models_dir() / "add_hardswish.h5";
const fs::path kAddIo = models_dir() / "add_hardswish.io.h5";

// x, the model's own result as y (so every error is 0), and a chance to change it.
class ToolCheck : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch();
    x_ = get_tensor(kLseIo, "x");
    make(x_);
  }

  void make(const TensorData& x) {
    const fs::path seed = folder_ / "seed.h5";
    fs::remove(seed);
    put_tensor(seed, "x", x);
    expect_good(run_tool({"run", kLse, "--input", seed, "--output", seed, "--device", "cpu"}));
    y_ = get_tensor(seed, "y");
    x_ = x;
  }

  // Writes the file with y as it now is, and checks it.
  Outcome check(const std::vector<double>& tolerance = {}, const std::vector<double>& rtol = {},
                const std::vector<std::string>& more = {"--json"}) {
    file_ = folder_ / "io.h5";
    fs::remove(file_);
    put_tensor(file_, "x", x_);
    put_tensor(file_, "y", y_, Stored::kFloat64);
    if (!tolerance.empty()) put_attribute(file_, "tolerance", tolerance);
    if (!rtol.empty()) put_attribute(file_, "rtol", rtol);
    std::vector<std::string> line = {"check", kLse, file_, "--device", "cpu"};
    line.insert(line.end(), more.begin(), more.end());
    return run_tool(line);
  }

  fs::path folder_, file_;
  TensorData x_, y_;
};

TEST_F(ToolCheck, JsonHasStableKeys) {
  const Outcome outcome = check();
  expect_good(outcome);
  const json report = json::parse(outcome.out);
  for (const char* key : {"command", "model", "file", "passed", "compared", "failed", "non_finite",
                          "max_abs_err", "p999_abs_err", "max_rel_err", "p999_rel_err", "limits",
                          "worst", "seconds", "device", "kernel", "problem", "precision", "io"}) {
    EXPECT_TRUE(report.contains(key)) << key;
  }
  EXPECT_EQ(report["max_abs_err"], 0.0);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_EQ(report["compared"], y_.values.size());
}

TEST_F(ToolCheck, TextHasMaximumAndPercentile) {
  const Outcome outcome = check({}, {}, {});
  expect_good(outcome);
  EXPECT_TRUE(outcome.out.starts_with("PASSED")) << outcome.out;
  EXPECT_NE(outcome.out.find("maximum"), std::string::npos);
  EXPECT_NE(outcome.out.find("99.9th percentile"), std::string::npos);
}

TEST_F(ToolCheck, OneToleranceIsAbsoluteAndRelative) {
  const std::size_t at = 17;
  const double y = y_.values[at];
  y_.values[at] = y + 2.5e-3;
  expect_failure(check({1e-3}), 1, {"1 of"});
  expect_good(check({2.5e-3}));
  const json limits = json::parse(check({2.5e-3}).out)["limits"];
  EXPECT_EQ(limits["absolute"], 2.5e-3);
  EXPECT_EQ(limits["relative"], 2.5e-3);
  EXPECT_EQ(limits["source"], "the file");
}

TEST_F(ToolCheck, TwoTolerancesAndRtolAreKeptApart) {
  json limits = json::parse(check({1e-4, 1e-2}).out)["limits"];
  EXPECT_EQ(limits["absolute"], 1e-4);
  EXPECT_EQ(limits["relative"], 1e-2);
  limits = json::parse(check({1e-4}, {3e-2}).out)["limits"];
  EXPECT_EQ(limits["absolute"], 1e-4);
  EXPECT_EQ(limits["relative"], 3e-2);
}

TEST_F(ToolCheck, RelativeLimitScalesWithY) {
  const std::size_t at = 17;
  y_.values[at] *= 1 + 1e-3;
  ASSERT_GT(std::abs(y_.values[at]), 0.1);
  expect_good(check({0}, {1.1e-3}));
  expect_failure(check({0}, {0.9e-3}), 1, {"1 of"});
}

TEST_F(ToolCheck, WithoutAttributesThePrecisionsBoundHolds) {
  const auto limits = [](const Outcome& outcome) { return json::parse(outcome.out)["limits"]; };
  Outcome outcome = check();
  expect_good(outcome);
  EXPECT_TRUE(limits(outcome)["absolute"].is_null());
  EXPECT_EQ(limits(outcome)["source"], "the bound of fp32 with fp32 I/O");

  y_.values[3] += 2e-4;  // far more than fp32 may err, far less than TF32 or bf16 may
  expect_failure(check(), 1, {"1 of"});
  outcome = check({}, {}, {"--json", "--precision", "tf32"});
  expect_good(outcome);
  EXPECT_EQ(limits(outcome)["source"], "the bound of tf32 with fp32 I/O");
  expect_good(check({}, {}, {"--json", "--io", "bf16"}));

  y_.values[3] += 0.5;  // more than any precision may err
  expect_failure(check({}, {}, {"--precision", "bf16", "--io", "bf16"}), 1, {"1 of"});
}

TEST_F(ToolCheck, TheFilesLimitsAreForFp32) {
  y_.values[3] += 2e-4;
  expect_failure(check({1e-6}), 1, {"1 of"});
  const Outcome outcome = check({1e-6}, {}, {"--json", "--precision", "tf32"});
  expect_good(outcome);
  EXPECT_EQ(json::parse(outcome.out)["limits"]["source"],
            "the file, or where wider the bound of tf32 with fp32 I/O");
}

TEST_F(ToolCheck, FailureNamesTheWorstIndex) {
  ASSERT_EQ(y_.shape.size(), 5u);
  y_.values[5] += 0.1;
  const std::size_t worst = y_.values.size() - 1;
  y_.values[worst] += 0.5;
  const std::string index = std::to_string(y_.shape[0] - 1) + "," +
                            std::to_string(y_.shape[1] - 1) + "," +
                            std::to_string(y_.shape[2] - 1) + "," +
                            std::to_string(y_.shape[3] - 1) + "," + std::to_string(y_.shape[4] - 1);
  const Outcome outcome = check({1e-3});
  expect_failure(outcome, 1, {"2 of", "[" + index + "]"});
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report["passed"], false);
  EXPECT_EQ(report["failed"], 2);
  EXPECT_NEAR(report["max_abs_err"].get<double>(), 0.5, 1e-12);
  const Outcome text = check({1e-3}, {}, {});
  EXPECT_TRUE(text.out.starts_with("FAILED")) << text.out;
}

TEST_F(ToolCheck, PercentileLeavesOutTheTopThousandth) {
  const std::size_t count = y_.values.size();
  const std::size_t out_of_it = count - (count * 999 + 999) / 1000;  // values above the rank
  for (std::size_t i = 0; i < out_of_it; ++i) y_.values[i] += 0.5;
  EXPECT_EQ(json::parse(check({1}).out)["p999_abs_err"], 0.0);
  y_.values[out_of_it] += 0.25;
  EXPECT_NEAR(json::parse(check({1}).out)["p999_abs_err"].get<double>(), 0.25, 1e-6);
}

TEST_F(ToolCheck, NanMustMeetNan) {
  y_.values[9] = kNan;
  const Outcome outcome = check({1e3});
  expect_failure(outcome, 1, {"1 of", "expected nan"});
  EXPECT_EQ(json::parse(outcome.out)["max_abs_err"], "inf");

  TensorData x = get_tensor(kLseIo, "x");
  x.values[0] = kNan;
  make(x);
  ASSERT_TRUE(std::isnan(y_.values[0]));
  const Outcome met = check({1e-6});
  expect_good(met);
  EXPECT_GT(json::parse(met.out)["non_finite"], 0);
  y_.values[0] = 0.5;
  expect_failure(check({1e3}), 1, {"got nan"});
}

TEST_F(ToolCheck, InfinityIsNoFiniteNumber) {
  y_.values[9] = kInf;
  expect_failure(check({1e3}), 1, {"expected inf"});
  y_.values[9] = 1e300;  // beyond float32: counts as infinity
  expect_failure(check({1e3}), 1, {"1 of"});
}

TEST(ToolCheckAdd, InfinityMeetsItsSignAndWhatPassesFloat32) {
  const fs::path folder = scratch();
  const fs::path file = folder / "io.h5";
  TensorData x = get_tensor(kAddIo, "x");
  TensorData add = get_tensor(kAddIo, "add");
  add.values[0] = 1e30;  // squared: past float32
  put_tensor(file, "x", x);
  put_tensor(file, "add", add);
  expect_good(
      run_tool({"run", kAdd, "--input", file, "--add", file, "--output", file, "--device", "cpu"}));
  TensorData y = get_tensor(file, "y");
  ASSERT_EQ(y.values[0], kInf);
  for (const auto& [value, exit_code] :
       {std::pair{kInf, 0}, {1e60, 0}, {-kInf, 1}, {-1e60, 1}, {3e38, 1}, {kNan, 1}}) {
    y.values[0] = value;
    fs::remove(file);
    put_tensor(file, "x", x);
    put_tensor(file, "add", add);
    put_tensor(file, "y", y, Stored::kFloat64);
    const Outcome outcome = run_tool({"check", kAdd, file, "--device", "cpu"});
    if (exit_code == 0) {
      expect_good(outcome);
    } else {
      expect_failure(outcome, exit_code, {"[0,0,0,0,0]"});
    }
  }
}

TEST(ToolCheckAdd, MissingDatasetsAreUnreadable) {
  const fs::path folder = scratch();
  for (const char* missing : {"x", "add", "y"}) {
    const fs::path file = folder / (std::string("no_") + missing + ".h5");
    for (const std::string name : {"x", "add", "y"}) {
      if (name != missing) put_tensor(file, name, get_tensor(kAddIo, name));
    }
    expect_failure(run_tool({"check", kAdd, file, "--device", "cpu"}), 4,
                   {std::string("'") + missing + "'"});
  }
}

TEST_F(ToolCheck, AWrongShapeOfYFailsTheCheck) {
  y_.shape[2] -= 1;
  y_.values.resize(y_.shape[0] * y_.shape[1] * y_.shape[2] * y_.shape[3] * y_.shape[4]);
  expect_failure(check(), 1, {"shape"});
}

TEST_F(ToolCheck, ASenselessLimitIsRefused) {
  expect_failure(check({-1}), 3, {"tolerance"});
  expect_failure(check({kNan}), 3, {"tolerance"});
  expect_failure(check({1, 2, 3}), 3, {"tolerance"});
}

TEST_F(ToolCheck, AnUnusedAddIsNotedUnlessQuiet) {
  expect_good(check());
  put_tensor(file_, "add", {{1, 1, 1, 1, 1}, {0}});
  const std::vector<std::string> line = {"check", kLse, file_, "--device", "cpu"};
  EXPECT_NE(run_tool(line).err.find("add"), std::string::npos);
  auto quiet = line;
  quiet.push_back("-q");
  EXPECT_EQ(run_tool(quiet).err, "");
}

// The file's limits, and without them the precision's bound, which TF32 products would not keep.
TEST(ToolCheckModels, TheBundledModelsKeepThePrecisionsBound) {
  const fs::path folder = scratch();
  for (const std::string name : {"logsumexp_swish_clamp", "softmax_sigmoid", "add_hardswish"}) {
    const fs::path bare = folder / (name + ".io.h5");
    const fs::path io = models_dir() / (name + ".io.h5");
    for (const std::string& dataset : dataset_names(io)) {
      put_tensor(bare, dataset, get_tensor(io, dataset), Stored::kFloat64);
    }
    const Outcome outcome =
        run_tool({"check", models_dir() / (name + ".h5"), bare, "--device", "cpu", "--json"});
    expect_good(outcome);
    EXPECT_EQ(json::parse(outcome.out)["limits"]["source"], "the bound of fp32 with fp32 I/O");
  }
}

TEST(ToolCheckModels, TheBundledModelsPassAtEveryPrecisionAndType) {
  const std::vector<std::vector<std::string>> settings = {{},
                                                          {"--precision", "tf32"},
                                                          {"--precision", "bf16"},
                                                          {"--io", "fp16"},
                                                          {"--io", "bf16"},
                                                          {"--precision", "fp16", "--io", "fp16"},
                                                          {"--precision", "bf16", "--io", "bf16"},
                                                          {"--threads", "1"}};
  for (const char* name : {"logsumexp_swish_clamp", "softmax_sigmoid", "add_hardswish"}) {
    for (const auto& setting : settings) {
      std::vector<std::string> line = {"check", models_dir() / (std::string(name) + ".h5"),
                                       models_dir() / (std::string(name) + ".io.h5"), "--device",
                                       "cpu"};
      line.insert(line.end(), setting.begin(), setting.end());
      expect_good(run_tool(line));
    }
  }
}

}  // namespace
}  // namespace volup::test
