// SPDX-License-Identifier: Apache-2.0
//
// volup run: where tensors come from and go to, element types, and each way it can fail. The
// numbers themselves are case_test.cpp's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor_file.h"
#include "tool_runner.h"

namespace volup::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kLse = models_dir() / "logsumexp_swish_clamp.h5";
const fs::path kLseIo = models_dir() / "logsumexp_swish_clamp.io.h5";
const fs::path kAdd = models_dir() / "add_hardswish.h5";
const fs::path kAddIo = models_dir() / "add_hardswish.io.h5";

std::vector<std::string> run_line(const fs::path& model, const std::string& input,
                                  const std::string& output) {
  return {"run", model, "--input", input, "--output", output, "--device", "cpu"};
}

TEST(ToolRun, PrintsOneJsonObjectWithStableKeys) {
  const fs::path out = scratch() / "out.h5";
  auto line = run_line(kLse, kLseIo, out.string() + ":group/result");
  line.push_back("--json");
  const Outcome outcome = run_tool(line);
  expect_good(outcome);
  const json report = json::parse(outcome.out);
  for (const char* key : {"command", "model", "output", "seconds", "device", "device_note",
                          "kernel", "tile", "problem", "precision", "io", "workspace_bytes"}) {
    EXPECT_TRUE(report.contains(key)) << key;
  }
  EXPECT_EQ(report["command"], "run");
  EXPECT_EQ(report["device"]["type"], "cpu");
  EXPECT_EQ(report["precision"], "fp32");
  const TensorData result = get_tensor(out, "group/result");
  EXPECT_EQ(report["output"]["shape"], json(result.shape));
  EXPECT_EQ(outcome.err, "");
}

TEST(ToolRun, ReplacesOneDatasetAndKeepsTheOthers) {
  const fs::path file = scratch() / "data.h5";
  fs::copy_file(kLseIo, file);
  put_tensor(file, "keep", {{2}, {7, 8}});
  const TensorData truth = get_tensor(file, "y");
  const auto line = run_line(kLse, file.string() + ":x", file.string() + ":y");
  for (int round = 0; round < 2; ++round) expect_good(run_tool(line));
  auto names = dataset_names(file);
  const auto before = dataset_names(kLseIo);
  EXPECT_EQ(names.size(), before.size() + 1);
  EXPECT_EQ(get_tensor(file, "keep").values, (std::vector<double>{7, 8}));
  const TensorData result = get_tensor(file, "y");
  EXPECT_EQ(result.shape, truth.shape);
  EXPECT_TRUE(is_float32(file, "y"));
}

TEST(ToolRun, ReadsNamedDatasetsOfAnyRealType) {
  const fs::path folder = scratch();
  const fs::path file = folder / "in.h5";
  TensorData x{{1, 3, 2, 3, 2}, {}};
  for (int i = 0; i < 36; ++i) x.values.push_back(i % 7 - 3);
  put_tensor(file, "a/f32", x);
  put_tensor(file, "a/f64", x, Stored::kFloat64);
  put_tensor(file, "a/i16", x, Stored::kInt16);
  for (const char* name : {"f32", "f64", "i16"}) {
    expect_good(run_tool(
        run_line(kLse, file.string() + ":a/" + name, (folder / "out.h5").string() + ":" + name)));
  }
  const TensorData expected = get_tensor(folder / "out.h5", "f32");
  EXPECT_GT(*std::max_element(expected.values.begin(), expected.values.end()),
            *std::min_element(expected.values.begin(), expected.values.end()));
  EXPECT_EQ(get_tensor(folder / "out.h5", "f64").values, expected.values);
  EXPECT_EQ(get_tensor(folder / "out.h5", "i16").values, expected.values);
}

TEST(ToolRun, APathWithColonsThatExistsIsTheFile) {
  const fs::path folder = scratch();
  const fs::path in = folder / "a:b ü.h5";
  fs::copy_file(kLseIo, in);
  expect_good(run_tool(run_line(kLse, in, folder / "new:file.h5")));
  EXPECT_EQ(dataset_names(folder / "new:file.h5"), std::vector<std::string>{"y"});
  expect_good(run_tool(run_line(kLse, in.string() + ":x", (folder / "other:file").string() + ":")));
  EXPECT_EQ(dataset_names(folder / "other:file"), std::vector<std::string>{"y"});
  fs::copy_file(kLse, folder / "mödel:1.h5");
  expect_good(run_tool(run_line(folder / "mödel:1.h5", in, folder / "again.h5")));
}

TEST(ToolRun, WordsAfterDoubleDashAreFiles) {
  const fs::path folder = scratch();
  const fs::path model = folder / "-model.h5";
  fs::copy_file(kLse, model);
  const std::string command = "cd '" + folder.string() + "' && '" + VOLUP_TEST_TOOL + "' inspect ";
  EXPECT_EQ(WEXITSTATUS(std::system((command + "-- -model.h5 > /dev/null").c_str())), 0) << command;
  EXPECT_EQ(WEXITSTATUS(std::system((command + "-model.h5 2> /dev/null").c_str())), 2) << command;
  expect_good(run_tool(
      {"run", "--input", kLseIo, "--output", folder / "o.h5", "--device", "cpu", "--", model}));
}

TEST(ToolRun, HalfTypesRoundTheResult) {
  const fs::path out = scratch() / "out.h5";
  for (const char* io : {"fp32", "fp16", "bf16"}) {
    auto line = run_line(kLse, kLseIo, out.string() + ":" + io);
    line.insert(line.end(), {"--io", io});
    expect_good(run_tool(line));
  }
  const auto exact = get_tensor(out, "fp32").values;
  const auto fp16 = get_tensor(out, "fp16").values;
  const auto bf16 = get_tensor(out, "bf16").values;
  bool differ = false;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    ASSERT_NEAR(fp16[i], exact[i], 0x1p-6) << i;
    ASSERT_NEAR(bf16[i], exact[i], 0x1p-3) << i;
    // 8 significant bits: dividing by the last one's weight leaves a whole number.
    const double unit = bf16[i] == 0 ? 1 : std::ldexp(1.0, std::ilogb(bf16[i]) - 7);
    ASSERT_EQ(bf16[i] / unit, std::round(bf16[i] / unit)) << i;
    differ = differ || bf16[i] != exact[i];
  }
  EXPECT_TRUE(differ);
}

TEST(ToolRun, AForcedKernelRunsOrIsNamed) {
  const fs::path out = scratch() / "out.h5";
  auto line = run_line(kLse, kLseIo, out);
  line.insert(line.end(), {"--json", "--kernel", "cpu/reference"});
  const Outcome outcome = run_tool(line);
  expect_good(outcome);
  EXPECT_EQ(json::parse(outcome.out)["kernel"], "cpu/reference");
  line.back() = "cpu/refrence";
  expect_failure(run_tool(line), 2, {"'cpu/refrence'", "'cpu/reference'"});
}

TEST(ToolRun, FailsOnArgumentsThatDoNotGoTogether) {
  const fs::path out = scratch() / "out.h5";
  expect_failure(run_tool(run_line(kAdd, kAddIo, out)), 2, {"--add"});
  auto line = run_line(kLse, kLseIo, out);
  line.insert(line.end(), {"--add", kAddIo});
  expect_failure(run_tool(line), 2, {"--add"});
  line = run_line(kLse, kLseIo, out);
  line.insert(line.end(), {"--precision", "fp16"});
  expect_failure(run_tool(line), 2, {"fp16"});
  expect_failure(run_tool(run_line(kLse, kLseIo, out.string() + ":/")), 2, {"dataset"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(ToolRun, FailsOnFilesThatCannotBeRead) {
  const fs::path folder = scratch();
  const fs::path out = folder / "out.h5";
  const fs::path text = folder / "text.h5";
  std::ofstream(text) << "this is text\n";
  std::ofstream(folder / "empty.h5").flush();
  fs::copy_file(kLseIo, folder / "cut.h5");
  fs::resize_file(folder / "cut.h5", fs::file_size(kLseIo) / 2);
  const std::string missing = (folder / "none.h5").string();
  expect_failure(run_tool(run_line(kLse, missing, out)), 4, {missing, "no such file"});
  expect_failure(run_tool(run_line(kLse, folder, out)), 4, {"directory"});
  expect_failure(run_tool(run_line(kLse, text, out)), 4, {"not an HDF5 file"});
  expect_failure(run_tool(run_line(kLse, folder / "empty.h5", out)), 4, {"empty"});
  expect_failure(run_tool(run_line(kLse, folder / "cut.h5", out)), 4, {"truncated"});
  expect_failure(run_tool(run_line(kLse, kLseIo.string() + ":q", out)), 4,
                 {"'q'", "it has", "x, y"});
  expect_failure(run_tool(run_line(kLse, kLseIo.string() + ":q/r", out)), 4, {"'q/r'"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(ToolRun, FailsOnTensorsThatDoNotFit) {
  const fs::path folder = scratch();
  const fs::path out = folder / "out.h5";
  const fs::path file = folder / "in.h5";
  put_tensor(file, "rank4", {{3, 2, 2, 2}, std::vector<double>(24)});
  put_tensor(file, "channels", {{1, 4, 2, 2, 2}, std::vector<double>(32)});
  put_tensor(file, "text", {{1, 3, 2, 2, 2}, {}}, Stored::kString);
  const std::string at = file.string() + ":";
  expect_failure(run_tool(run_line(kLse, at + "rank4", out)), 3, {"rank 4", "need 5"});
  expect_failure(run_tool(run_line(kLse, at + "channels", out)), 3, {"4", "3"});
  expect_failure(run_tool(run_line(kLse, at + "text", out)), 3, {"'text'"});
  put_tensor(file, "add", {{1, 64, 2, 2, 2}, std::vector<double>(512)});
  auto line = run_line(kAdd, kAddIo, out);
  line.insert(line.end(), {"--add", at + "add"});
  expect_failure(run_tool(line), 3, {"1,64,2,2,2", "'add'"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(ToolRun, NeverHarmsAFileItCannotWrite) {
  const fs::path folder = scratch();
  const fs::path text = folder / "notes.txt";
  std::ofstream(text) << "precious\n";
  expect_failure(run_tool(run_line(kLse, kLseIo, text)), 4, {"not an HDF5 file"});
  EXPECT_EQ(fs::file_size(text), 9u);
  const fs::path file = folder / "groups.h5";
  put_tensor(file, "y/inner", {{1}, {5}});
  expect_failure(run_tool(run_line(kLse, kLseIo, file)), 3, {"'y'"});
  EXPECT_EQ(get_tensor(file, "y/inner").values, std::vector<double>{5});
  expect_failure(run_tool(run_line(kLse, kLseIo, folder / "no" / "out.h5")), 4, {"directory"});
}

TEST(ToolRun, AnEmptyBatchGivesAnEmptyResult) {
  const fs::path folder = scratch();
  put_tensor(folder / "in.h5", "x", {{0, 3, 2, 2, 2}, {}});
  expect_good(run_tool(run_line(kLse, folder / "in.h5", folder / "out.h5")));
  EXPECT_EQ(get_tensor(folder / "out.h5", "y").shape,
            (std::vector<unsigned long long>{0, 1, 3, 3, 3}));
}

TEST(ToolRun, AbsentDeviceIsExitFive) {
  const fs::path out = scratch() / "out.h5";
  auto line = run_line(kLse, kLseIo, out);
  line.back() = "cuda:4096";  // more devices than any host has
  expect_failure(run_tool(line), 5, {});
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace volup::test
