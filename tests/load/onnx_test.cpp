// SPDX-License-Identifier: Apache-2.0
//
// ONNX files (make_onnx.py), through the library: written by PyTorch's exporters and node by node;
// weights value by value, outputs against float64, epilogue constants; refusals by their words;
// damaged files through the module's own seam.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "foreign_case.h"
#include "module_under_test.h"

namespace volup::test {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(VOLUP_TEST_LOAD_DIR) / "onnx";

const ModuleUnderTest& onnx() {
  static const ModuleUnderTest* const module = new ModuleUnderTest("libvolup_onnx.so");
  return *module;
}

class OnnxFile : public testing::TestWithParam<std::string> {};

TEST_P(OnnxFile, GivesItsWeightsConstantsAndFloat64Outputs) {
  const Io io(kFolder / (GetParam() + ".io.h5"));
  const SpokenOptions spoken;
  volup_model* model = nullptr;
  ASSERT_EQ(volup_model_load((kFolder / (GetParam() + ".onnx")).c_str(), &spoken.options, &model),
            VOLUP_STATUS_OK)
      << volup_last_error();
  expect_model(model, io);
  expect_converted(model, io, spoken.options, "onnx");
  expect_checked(kFolder / (GetParam() + ".onnx"), kFolder / (GetParam() + ".io.h5"), "");
  volup_epilogue got{};
  got.struct_size = sizeof(got);
  ASSERT_EQ(volup_model_epilogue(model, &got), VOLUP_STATUS_OK);
  volup_epilogue need{};
  ASSERT_EQ(volup_epilogue_init(static_cast<volup_epilogue_kind>(got.kind), &need),
            VOLUP_STATUS_OK);
  if (got.kind != VOLUP_EPILOGUE_SOFTMAX_SIGMOID) {
    EXPECT_EQ(got.shift, io.number("shift", need.shift));
    EXPECT_EQ(got.divisor, io.number("divisor", need.divisor));
    EXPECT_EQ(got.subtract, io.number("subtract", need.subtract));
    EXPECT_EQ(got.clamp_min, io.number("clamp_min", need.clamp_min));
    EXPECT_EQ(got.clamp_max, io.number("clamp_max", need.clamp_max));
  }
  volup_model_destroy(model);
}

INSTANTIATE_TEST_SUITE_P(Files, OnnxFile, testing::ValuesIn(names_in(kFolder, ".io.h5")),
                         [](const auto& each) { return each.param; });

Outcome load(const std::string& name) { return onnx().load(read_file(kFolder / (name + ".onnx"))); }

TEST(Onnx, EveryRefusalHasItsWords) {
  std::ifstream lines(kFolder / "refusals.txt");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const std::string name = line.substr(0, line.find('\t'));
    const std::string words = line.substr(line.find('\t') + 1);
    const Outcome outcome = load(name);
    EXPECT_TRUE(outcome.status == VOLUP_STATUS_UNSUPPORTED ||
                outcome.status == VOLUP_STATUS_UNREADABLE)
        << name << " " << outcome.status << " " << outcome.text;
    EXPECT_NE(outcome.text.find(words), std::string::npos)
        << name << ": " << words << "\nin: " << outcome.text;
  }
  EXPECT_EQ(count, static_cast<int>(names_in(kFolder, ".onnx").size() -
                                    names_in(kFolder, ".io.h5").size()));
  EXPECT_GT(count, 20);
}

TEST(Onnx, WhatWasReadIsSaid) {
  const Outcome torch = load("torch_script17_a");
  ASSERT_TRUE(torch.ok()) << torch.text;
  EXPECT_STREQ(torch.model.kind, "onnx");
  EXPECT_STREQ(torch.model.producer, "pytorch 2.11.0");
  EXPECT_STREQ(torch.model.weight_name, "conv_transpose.weight");
  EXPECT_STREQ(torch.model.weight_dtype, "float32");
  EXPECT_EQ(torch.unused(), "");
  EXPECT_EQ(torch.notes(), "");
  EXPECT_EQ(load("constants_in_nodes").unused(), "'never'");
  EXPECT_STREQ(load("weights_float16").model.weight_dtype, "float16");
  EXPECT_STREQ(load("weights_bfloat16").model.weight_dtype, "bfloat16");
  EXPECT_STREQ(load("weights_float64").model.weight_dtype, "float64");
  const std::string cast = load("weights_bfloat16").notes();
  EXPECT_NE(cast.find("casts to BFLOAT16 where volup goes on in float32"), std::string::npos)
      << cast;
  const std::string steps = load("lse_plain").notes();
  EXPECT_NE(steps.find("logsumexp is spelled out without a maximum"), std::string::npos) << steps;
  const std::string shape = load("output_shape_notset").notes();
  EXPECT_NE(shape.find("output_shape [4, 6, 9] became the padding"), std::string::npos) << shape;
}

TEST(Onnx, ASubmoduleIsNoNameInAGraph) {
  volup_load_options options{};
  options.struct_size = sizeof(options);
  options.submodule = "up";
  const Outcome outcome = onnx().load(read_file(kFolder / "torch_script17_a.onnx"), options);
  EXPECT_EQ(outcome.status, VOLUP_STATUS_UNSUPPORTED);
  EXPECT_NE(outcome.text.find("onnx.utils.extract_model"), std::string::npos) << outcome.text;
}

TEST(Onnx, OptionsMustAgreeWithTheFile) {
  const SpokenOptions spoken("--type softmax_sigmoid");
  volup_model* model = nullptr;
  EXPECT_EQ(volup_model_load((kFolder / "torch_script17_a.onnx").c_str(), &spoken.options, &model),
            VOLUP_STATUS_UNSUPPORTED);
  EXPECT_NE(std::string(volup_last_error()).find("type: got logsumexp_swish_clamp"),
            std::string::npos)
      << volup_last_error();
}

TEST(Onnx, TruncatedFilesAreRefused) {
  const std::string good = read_file(kFolder / "torch_dynamo18_c.onnx");
  for (size_t size = 0; size < good.size(); size += 1 + size / 64) {
    const Outcome outcome = onnx().load(good.substr(0, size));
    ASSERT_FALSE(outcome.ok()) << "first " << size << " bytes";
    ASSERT_FALSE(outcome.text.empty());
    ASSERT_NE(outcome.status, VOLUP_STATUS_INTERNAL) << outcome.text;
  }
}

// ONNX has no checksums: a changed weight passes. Nothing else may happen.
TEST(Onnx, ChangedBytesGiveAModelOrWords) {
  constexpr uint64_t kSeed = 99;
  std::mt19937_64 random(kSeed);
  int refused = 0;
  for (const char* name : {"torch_dynamo18_c", "lse_in_steps18", "groups_dilations"}) {
    const std::string good = read_file(kFolder / (std::string(name) + ".onnx"));
    for (int round = 0; round < 2000; ++round) {
      SCOPED_TRACE(testing::Message() << name << " seed " << kSeed << " round " << round);
      std::string bad = good;
      const int changes = 1 + static_cast<int>(random() % 4);
      for (int i = 0; i < changes; ++i) bad[random() % bad.size()] = static_cast<char>(random());
      const Outcome outcome = onnx().load(bad);
      if (outcome.ok()) continue;
      ++refused;
      ASSERT_FALSE(outcome.text.empty());
      ASSERT_TRUE(outcome.status == VOLUP_STATUS_UNREADABLE ||
                  outcome.status == VOLUP_STATUS_UNSUPPORTED)
          << outcome.status << " " << outcome.text;
    }
  }
  EXPECT_GT(refused, 100);
}

// What onnx_fuzz found to be new, made small.
TEST(Onnx, TheFuzzersCorpusGivesModelsOrWords) {
  const fs::path folder = fs::path(VOLUP_TEST_LOAD_DIR) / "../fuzz/onnx";
  int count = 0;
  for (const auto& file : fs::directory_iterator(folder)) {
    const Outcome outcome = onnx().load(read_file(file.path()));
    EXPECT_NE(outcome.status, VOLUP_STATUS_INTERNAL) << file.path() << outcome.text;
    EXPECT_TRUE(outcome.ok() || !outcome.text.empty()) << file.path();
    ++count;
  }
  EXPECT_GT(count, 30);
}

TEST(Onnx, PrintsNothing) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  onnx().load(std::string("\x08\x07\x3a\xff\xff", 5) + std::string(100, '\x01'));
  onnx().load(read_file(kFolder / "torch_script17_a.onnx").substr(0, 700));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_NE(std::string(onnx().abi().library).find("protobuf 3"), std::string::npos);
}

}  // namespace
}  // namespace volup::test
