// SPDX-License-Identifier: Apache-2.0
//
// Every file of tests/cases through the tool on the CPU: the runnable ones checked, converted, and
// the converted file checked and run; the others refused with words.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "tensor_file.h"
#include "tool_runner.h"

namespace volup::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Case {
  fs::path model;
  fs::path io;

  std::string name() const {
    return model.parent_path().filename().string() + "_" + model.stem().string();
  }
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.model; }

std::vector<Case> cases_where(bool refused) {
  std::vector<Case> cases;
  for (const auto& folder : fs::directory_iterator(cases_dir())) {
    const fs::path io = folder.path() / "io.h5";
    if (!fs::exists(io) || get_text(io, "expect").starts_with("refuse") != refused) continue;
    for (const auto& file : fs::directory_iterator(folder.path())) {
      if (file.path().extension() == ".pt") cases.push_back({file.path(), io});
    }
  }
  std::sort(cases.begin(), cases.end(),
            [](const Case& a, const Case& b) { return a.model < b.model; });
  return cases;
}

std::string case_name(const testing::TestParamInfo<Case>& info) { return info.param.name(); }

// y as the float32 result must have it, for the case's tolerance.
bool near(double got, double expected, double tolerance) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::abs(expected) > std::numeric_limits<float>::max()) {
    return std::isinf(got) && std::signbit(got) == std::signbit(expected);
  }
  return std::abs(got - expected) <= tolerance + tolerance * std::abs(expected);
}

class ToolRunnableCase : public testing::TestWithParam<Case> {};
class ToolRefusedCase : public testing::TestWithParam<Case> {};

TEST_P(ToolRunnableCase, ChecksConvertsChecksAndRuns) {
  if (!has_torchscript()) GTEST_SKIP() << "built without the TorchScript module";
  const Case& c = GetParam();
  const fs::path folder = scratch();
  const std::string converted = (folder / "model.h5").string();
  const std::string result = (folder / "result.h5").string();

  expect_good(run_tool({"check", c.model, c.io, "--device", "cpu"}));
  expect_good(run_tool({"convert", c.model, converted}));
  const Outcome checked = run_tool({"check", converted, c.io, "--device", "cpu", "--json"});
  expect_good(checked);
  const json report = json::parse(checked.out);
  const TensorData y = get_tensor(c.io, "y");
  EXPECT_EQ(report["passed"], true);
  EXPECT_EQ(report["compared"], y.values.size());

  std::vector<std::string> line = {"run",      converted, "--input",  c.io,
                                   "--output", result,    "--device", "cpu"};
  const auto names = dataset_names(c.io);
  if (std::find(names.begin(), names.end(), "add") != names.end()) {
    line.insert(line.end(), {"--add", c.io});
  }
  const Outcome ran = run_tool(line);
  expect_good(ran);
  const TensorData out = get_tensor(result, "y");
  ASSERT_EQ(out.shape, y.shape);
  EXPECT_TRUE(is_float32(result, "y"));
  const double tolerance = get_number(c.io, "tolerance");
  ASSERT_GT(tolerance, 0);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    ASSERT_TRUE(near(out.values[i], y.values[i], tolerance))
        << "element " << i << ": got " << out.values[i] << ", expected " << y.values[i]
        << "; rerun: " << ran.rerun;
  }
}

TEST_P(ToolRefusedCase, ByEveryCommandWithWords) {
  if (!has_torchscript()) GTEST_SKIP() << "built without the TorchScript module";
  const Case& c = GetParam();
  const fs::path out = scratch() / "model.h5";
  expect_failure(run_tool({"check", c.model, c.io, "--device", "cpu"}), 3, {});
  expect_failure(run_tool({"inspect", c.model}), 3, {});
  expect_failure(run_tool({"convert", c.model, out}), 3, {});
  EXPECT_FALSE(fs::exists(out));
}

INSTANTIATE_TEST_SUITE_P(Cases, ToolRunnableCase, testing::ValuesIn(cases_where(false)), case_name);
INSTANTIATE_TEST_SUITE_P(Cases, ToolRefusedCase, testing::ValuesIn(cases_where(true)), case_name);

TEST(ToolBadFile, IsRefusedByEveryCommandWithWords) {
  int files = 0;
  for (const auto& file : fs::directory_iterator(cases_dir() / "bad")) {
    const fs::path io = cases_dir() / "lse_seed" / "io.h5";
    ++files;
    // Weights alone are sound, but nobody said of which type and geometry. Of a truncated
    // TorchScript file only its module can tell.
    const bool is_sound = file.path().filename() == "state_dict_not_torchscript.pt";
    const bool is_unread = file.path().filename() == "truncated.pt" && !has_torchscript();
    const int code = is_sound || is_unread ? 3 : 4;
    expect_failure(run_tool({"inspect", file.path()}), code, {});
    expect_failure(run_tool({"check", file.path(), io, "--device", "cpu"}), code, {});
  }
  EXPECT_GE(files, 4);
}

TEST(ToolBadFile, MissingAndDirectoryAreUnreadable) {
  expect_failure(run_tool({"inspect", "/no/such/file.pt"}), 4, {"/no/such/file.pt"});
  expect_failure(run_tool({"inspect", cases_dir()}), 4, {});
  expect_failure(run_tool({"convert", "/no/such/file.pt", scratch() / "o.h5"}), 4, {});
}

}  // namespace
}  // namespace volup::test
