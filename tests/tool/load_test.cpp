// SPDX-License-Identifier: Apache-2.0
//
// Files of weights alone through the tool: the options that say the rest, on every command that
// loads a model; checked against float64 outputs, converted, and the converted file checked. The
// files are those of tests/load/checkpoints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor_file.h"
#include "tool_runner.h"

namespace volup::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Words = std::vector<std::string>;

std::string file(const std::string& name) {
  return (fs::path(VOLUP_TEST_CHECKPOINTS_DIR) / name).string();
}

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Words kA = {"--type", "A", "--stride", "2", "--padding", "1"};
const Words kB = {"--type",           "softmax_sigmoid",
                  "--stride",         "2x2x2",
                  "--padding",        "1:1x1x1",
                  "--output-padding", "1",
                  "--dilation",       "1",
                  "--groups",         "1",
                  "--kernel-size",    "3x3x3"};
const Words kC = {"--type", "C", "--stride", "2", "--padding", "1", "--output-padding", "1"};

struct Row {
  const char* name;
  Words how;
  const char* io;
};

std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }

class ToolWeights : public testing::TestWithParam<Row> {};

TEST_P(ToolWeights, CheckedConvertedAndCheckedAgain) {
  const Row& row = GetParam();
  const std::string io = file(row.io), h5 = (scratch() / "model.h5").string();
  expect_good(run_tool(Words{"check", file(row.name), io, "--device", "cpu"} + row.how));
  expect_good(run_tool(Words{"convert", file(row.name), h5} + row.how));
  expect_good(run_tool({"check", h5, io, "--device", "cpu"}));
  const Outcome inspected = run_tool({"inspect", h5, "--json"});
  expect_good(inspected);
  const json origin = json::parse(inspected.out)["model"]["source"]["origin"];
  const bool is_zip = fs::path(row.name).extension() == ".pt";
  EXPECT_EQ(origin["kind"], is_zip ? "state_dict" : "safetensors");
  EXPECT_EQ(origin["sha256"].get<std::string>().size(), 64u);
}

std::string row_name(const testing::TestParamInfo<Row>& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Files, ToolWeights,
    testing::Values(Row{"A_plain.pt", kA, "io_A.h5"}, Row{"B_plain.pt", kB, "io_B.h5"},
                    Row{"C_plain.pt", kC, "io_C.h5"}, Row{"B_checkpoint.pt", kB, "io_B.h5"},
                    Row{"B_compiled.pt", kB, "io_B.h5"}, Row{"B_shared_storage.pt", kB, "io_B.h5"},
                    Row{"B_channels_last.pt", kB, "io_B.h5"}, Row{"B_double.pt", kB, "io_B.h5"},
                    Row{"B_half.safetensors", kB, "io_B.h5"},
                    Row{"B_bfloat16.safetensors", kB, "io_B.h5"},
                    Row{"A.safetensors", kA, "io_A.h5"}, Row{"C.safetensors", kC, "io_C.h5"},
                    Row{"B_no_checksums.pt", kB + Words{"--ignore-crc"}, "io_B.h5"},
                    Row{"B_network.pt", kB + Words{"--submodule", "decoder.up1"}, "io_B.h5"},
                    Row{"B_network.safetensors", kC + Words{"--submodule", "decoder.up2"},
                        "io_C.h5"}),
    row_name);

TEST(ToolWeightsOptions, EveryCommandTakesThem) {
  const std::string out = (scratch() / "y.h5").string();
  const std::string model = file("C_plain.pt"), io = file("io_C.h5");
  expect_good(run_tool(
      Words{"run", model, "--input", io, "--add", io, "--output", out, "--device", "cpu"} + kC));
  expect_good(run_tool(
      Words{"bench", model, "--shape", "1,2,2,2,2", "--iterations", "1", "--device", "cpu"} + kC));
  const Outcome text = run_tool(Words{"inspect", model} + kC);
  expect_good(text);
  EXPECT_NE(text.out.find("unused          bias\n"), std::string::npos) << text.out;
}

TEST(ToolWeightsOptions, InspectGivesStableKeys) {
  const Outcome outcome = run_tool(Words{"inspect", file("A_plain.pt"), "--json"} + kA);
  expect_good(outcome);
  const json model = json::parse(outcome.out)["model"];
  EXPECT_EQ(model["type"], "logsumexp_swish_clamp");
  EXPECT_EQ(model["epilogue"]["subtract"], 0.25);
  EXPECT_EQ(model["geometry"]["in_channels"], 3);
  EXPECT_EQ(model["geometry"]["out_channels"], 4);
  EXPECT_EQ(model["geometry"]["padding_end"], json({1, 1, 1}));
  EXPECT_EQ(model["source"]["kind"], "state_dict");
  EXPECT_EQ(model["source"]["producer"], "PyTorch (torch.save, file version 3)");
  EXPECT_EQ(model["source"]["weight_dtype"], "float32");
  EXPECT_EQ(model["source"]["sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(model["unused"], json::array());
}

TEST(ToolWeightsOptions, ConstantsReachTheModel) {
  const Outcome outcome =
      run_tool(Words{"inspect", file("A_no_scalar.pt"), "--json", "--shift", "2.5", "--divisor",
                     "8", "--subtract", "-0.5", "--clamp-min", "-2e0", "--clamp-max", "inf"} +
               kA);
  expect_good(outcome);
  const json epilogue = json::parse(outcome.out)["model"]["epilogue"];
  EXPECT_EQ(epilogue["shift"], 2.5);
  EXPECT_EQ(epilogue["divisor"], 8.0);
  EXPECT_EQ(epilogue["subtract"], -0.5);
  EXPECT_EQ(epilogue["clamp_min"], -2.0);
}

TEST(ToolWeightsOptions, PaddingMayDifferPerSide) {
  const Outcome outcome = run_tool({"inspect", file("B_plain.pt"), "--json", "--type", "B",
                                    "--stride", "2", "--padding", "0:1x1x2:0"});
  expect_good(outcome);
  const json geometry = json::parse(outcome.out)["model"]["geometry"];
  EXPECT_EQ(geometry["padding_begin"], json({0, 1, 2}));
  EXPECT_EQ(geometry["padding_end"], json({1, 1, 0}));
}

TEST(ToolWeightsOptions, WhatDoesNotFitTheWeightIsRefusedAtOnce) {
  expect_failure(run_tool(Words{"inspect", file("B_plain.pt"), "--type", "B", "--stride", "2",
                                "--kernel-size", "3x4x5"}),
                 3, {"kernel: got [3, 3, 3] from the file, need [3, 4, 5] as the options say"});
  expect_failure(run_tool({"inspect", file("B_plain.pt")}), 3,
                 {"--type A|B|C", "--stride N", "'conv_transpose.weight' [4, 6, 3, 3, 3]"});
  expect_failure(run_tool(Words{"inspect", file("B_network.pt")} + kB), 3,
                 {"--submodule NAME", "'stem.weight'", "'decoder.up1.conv_transpose.weight'"});
}

TEST(ToolWeightsOptions, AFileThatSaysItselfMustAgree) {
  const std::string h5 = (scratch() / "model.h5").string();
  expect_good(run_tool(Words{"convert", file("B_plain.pt"), h5} + kB));
  expect_good(run_tool(Words{"inspect", h5} + kB));
  expect_failure(run_tool({"inspect", h5, "--type", "B", "--stride", "1", "--padding", "1"}), 3,
                 {"stride: got [2, 2, 2] from the file, need [1, 1, 1] as the options say",
                  "output_padding: got [1, 1, 1]"});
  expect_failure(run_tool({"inspect", h5, "--type", "C"}), 3,
                 {"type: got softmax_sigmoid from the file, need add_hardswish"});
}

TEST(ToolWeightsOptions, WeightsThatAreNotFiniteNeedAWord) {
  const Words inspect = {"inspect", file("N_not_finite.pt")};
  expect_failure(
      run_tool(inspect + kB), 3,
      {"conv_transpose.weight: got 1 NaN and 0 infinite of 648 values",
       "conv_transpose.bias: got 0 NaN and 1 infinite of 6 values", "--allow-nonfinite"});
  const Outcome allowed = run_tool(inspect + kB + Words{"--allow-nonfinite"});
  expect_good(allowed);
  EXPECT_NE(allowed.out.find("weight holds 1 NaN"), std::string::npos) << allowed.out;
}

TEST(ToolWeightsOptions, ChecksumsThatDoNotFitNeedAWord) {
  expect_failure(run_tool(Words{"inspect", file("B_no_checksums.pt")} + kB), 4,
                 {"CRC-32", "data/0", "--ignore-crc"});
}

TEST(ToolSubmodule, ABlockOfATorchScriptNetworkMeetsItsOutput) {
  if (!has_torchscript()) GTEST_SKIP() << "this build has no TorchScript module";
  const fs::path folder = VOLUP_TEST_SPELLINGS_DIR;
  const std::string io = (folder / "RNetwork_io.h5").string();
  for (const char* name : {"RNetwork_scripted.pt", "RNetwork_traced.pt"}) {
    const std::string model = (folder / name).string();
    expect_failure(run_tool({"check", model, io}), 3, {"'decoder'", "--submodule", "'stem'"});
    expect_good(run_tool({"check", model, io, "--device", "cpu", "--submodule", "decoder"}));
  }
}

TEST(ToolWeightsOptions, OtherFilesAreNamed) {
  expect_failure(run_tool(Words{"inspect", file("R_legacy.pt")} + kB), 4,
                 {"a legacy torch.save file", "save it again"});
  expect_failure(run_tool(Words{"inspect", file("R_runs.pt")} + kB), 3, {"'posix.system'"});
  EXPECT_FALSE(fs::exists("/tmp/volup_pickle_was_executed"));
}

}  // namespace
}  // namespace volup::test
