// SPDX-License-Identifier: Apache-2.0
//
// volup inspect, convert and bench, the log options, and the tool under another locale.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tool_runner.h"

namespace volup::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kAdd = models_dir() / "add_hardswish.h5";
const fs::path kLse = models_dir() / "logsumexp_swish_clamp.h5";
const fs::path kLseIo = models_dir() / "logsumexp_swish_clamp.io.h5";

TEST(ToolInspect, SaysTypeGeometryEpilogueAndSource) {
  const Outcome outcome = run_tool({"inspect", kAdd});
  expect_good(outcome);
  for (const char* words : {"add_hardswish", "32 -> 64 channels", "kernel 3", "stride 2",
                            "padding 1", "output padding 1", "55,360", "volup-hdf5", "divisor 6"}) {
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words << " in\n" << outcome.out;
  }
  EXPECT_EQ(outcome.err, "");
}

TEST(ToolInspect, JsonIsTheLibrarysDescription) {
  const Outcome outcome = run_tool({"inspect", kAdd, "--json"});
  expect_good(outcome);
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report["command"], "inspect");
  EXPECT_EQ(report["model"]["type"], "add_hardswish");
  EXPECT_EQ(report["model"]["geometry"]["kernel"], json({3, 3, 3}));
  EXPECT_EQ(report["model"]["geometry"]["output_padding"], json({1, 1, 1}));
  EXPECT_EQ(report["model"]["parameters"], 55360);
}

TEST(ToolInspect, UnusedParametersAreNamed) {
  if (!has_torchscript()) GTEST_SKIP() << "built without the TorchScript module";
  const Outcome outcome = run_tool({"inspect", models_dir() / "add_hardswish.pt"});
  expect_good(outcome);
  const std::size_t at = outcome.out.find("\nunused ");
  ASSERT_NE(at, std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("bias", at), std::string::npos);
}

TEST(ToolConvert, Hdf5ToHdf5KeepsTheModel) {
  const fs::path out = scratch() / "copy ü.h5";
  const Outcome outcome = run_tool({"convert", kAdd, out, "--json"});
  expect_good(outcome);
  EXPECT_EQ(json::parse(outcome.out)["bytes"], fs::file_size(out));
  const auto model = [](const fs::path& file) {
    return json::parse(run_tool({"inspect", file, "--json"}).out)["model"];
  };
  for (const char* key : {"type", "geometry", "epilogue", "bias", "parameters"}) {
    EXPECT_EQ(model(out)[key], model(kAdd)[key]) << key;
  }
}

TEST(ToolConvert, RefusesToWriteOverItsInputOrNowhere) {
  const fs::path folder = scratch();
  fs::copy_file(kAdd, folder / "m.h5");
  const auto size = fs::file_size(folder / "m.h5");
  expect_failure(run_tool({"convert", folder / "m.h5", folder / "." / "m.h5"}), 2, {"same file"});
  EXPECT_EQ(fs::file_size(folder / "m.h5"), size);
  expect_failure(run_tool({"convert", kAdd, folder / "no" / "m.h5"}), 4, {});
}

TEST(ToolBench, ProblemReportsEveryNumber) {
  const Outcome outcome = run_tool({"bench", "A n2 ci3 co16 i4x5x6 k3 s2 p1", "--device", "cpu",
                                    "--iterations", "5", "--seed", "7", "--json"});
  expect_good(outcome);
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report["seed"], 7);
  EXPECT_EQ(report["iterations"], 5);
  EXPECT_EQ(report["shape"], json({2, 3, 4, 5, 6}));
  EXPECT_EQ(report["output_shape"], json({2, 1, 7, 9, 11}));
  const json cold = report["cold"];
  EXPECT_GT(cold["min_ms"], 0.0);
  EXPECT_LE(cold["min_ms"], cold["median_ms"]);
  EXPECT_LE(cold["median_ms"], cold["p95_ms"]);
  EXPECT_GT(report["warm"]["min_ms"], 0.0);
  EXPECT_LE(report["warm"]["min_ms"], report["warm"]["median_ms"]);
  EXPECT_NE(report["kernel"], "");

  // 3 taps per axis and input, less the two that the padding cuts off.
  const double macs = 2.0 * (3 * 4 - 2) * (3 * 5 - 2) * (3 * 6 - 2) * 3 * 16;
  EXPECT_EQ(report["flops"], 2 * macs);
  const double bytes = 4.0 * (2 * 3 * 4 * 5 * 6 + 2 * 7 * 9 * 11);
  EXPECT_EQ(report["bytes"], bytes);
  const double seconds = cold["median_ms"].get<double>() * 1e-3;
  EXPECT_NEAR(report["gb_per_s"].get<double>() / (bytes / seconds * 1e-9), 1, 1e-9);
  EXPECT_NEAR(report["tflop_per_s"].get<double>() / (2 * macs / seconds * 1e-12), 1, 1e-9);
}

TEST(ToolBench, HalfTypesMoveHalfTheBytesAndAddCounts) {
  const auto bytes = [](const std::vector<std::string>& more) {
    std::vector<std::string> line = {
        "bench", "C n1 ci4 co4 i2x2x2 k2 s2", "--device", "cpu", "--iterations", "2", "--json"};
    line.insert(line.end(), more.begin(), more.end());
    return json::parse(run_tool(line).out)["bytes"];
  };
  EXPECT_EQ(bytes({}), 4 * (4 * 8 + 2 * 4 * 64));
  EXPECT_EQ(bytes({"--io", "bf16"}), 2 * (4 * 8 + 2 * 4 * 64));
}

TEST(ToolBench, ModelTakesAShape) {
  const Outcome outcome =
      run_tool({"bench", kLse, "--shape", "1,3,2,3,4", "--device", "cpu", "--iterations", "3"});
  expect_good(outcome);
  for (const char* words : {"median", "p95", "warm", "GB/s", "TFLOP/s", "kernel", "device"}) {
    EXPECT_NE(outcome.out.find(words), std::string::npos) << outcome.out;
  }
  expect_failure(run_tool({"bench", kLse, "--shape", "1,4,2,3,4", "--device", "cpu"}), 2,
                 {"4", "3"});
  expect_failure(run_tool({"bench", "/no/model.h5", "--shape", "1,3,2,3,4"}), 4, {});
}

TEST(ToolBench, AbsurdProblemsAreUsageErrors) {
  for (const char* problem :
       {"B n1 ci4 co4 i2x2x2 k36028797018963968", "B n1 ci4 co4 i2x2x2 k3 d1879048192 p9",
        "B n1 ci65536 co65536 i1x1x1 k3", "B n1 ci4 co4 i2x2x2 k3 g3",
        "B n1 ci4 co4 i2x2x2 k2 s2 p2", "B n-1 ci4 co4 i2x2x2 k3"}) {
    const Outcome outcome = run_tool({"bench", problem, "--device", "cpu", "--iterations", "1"});
    expect_failure(outcome, 2, {});
  }
}

TEST(ToolLog, VerboseAddsTheLibrarysLines) {
  const std::vector<std::string> line = {"bench", "B n1 ci4 co4 i2x2x2 k3", "--device",
                                         "cpu",   "--iterations",           "1"};
  const Outcome plain = run_tool(line);
  EXPECT_EQ(plain.err, "");
  auto verbose = line;
  verbose.push_back("-v");
  const Outcome said = run_tool(verbose);
  expect_good(said);
  EXPECT_NE(said.err.find("B n1 ci4 co4"), std::string::npos) << said.err;
}

// A comma as decimal point must reach neither what is read nor what is printed.
TEST(ToolLocale, GermanNumbersChangeNothing) {
  const fs::path folder = scratch();
  const std::string make =
      "localedef -i de_DE -f UTF-8 '" + (folder / "de_DE.UTF-8").string() + "' > /dev/null 2>&1";
  if (std::system(make.c_str()) != 0) GTEST_SKIP() << "localedef cannot make de_DE.UTF-8 here";
  const Environment german = {{"LOCPATH", folder.string()}, {"LC_ALL", "de_DE.UTF-8"}};
  std::vector<std::vector<std::string>> lines = {{"inspect", kAdd}, {"inspect", kAdd, "--json"}};
  if (has_torchscript()) {
    lines.push_back({"inspect", models_dir() / "logsumexp_swish_clamp.pt", "--json"});
  }
  for (const auto& line : lines) {
    const Outcome in_german = run_tool(line, german);
    expect_good(in_german);
    EXPECT_EQ(in_german.out, run_tool(line, {{"LC_ALL", "C"}}).out);
  }
  const Outcome checked = run_tool({"check", kLse, kLseIo, "--device", "cpu", "--json"}, german);
  expect_good(checked);
  EXPECT_EQ(json::parse(checked.out)["limits"]["absolute"], 1e-5);
  const Outcome timed = run_tool(
      {"bench", kLse, "--shape", "1,3,2,3,4", "--device", "cpu", "--iterations", "3", "--json"},
      german);
  expect_good(timed);
  EXPECT_TRUE(json::parse(timed.out)["cold"]["median_ms"].is_number());
}

}  // namespace
}  // namespace volup::test
