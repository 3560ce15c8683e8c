// SPDX-License-Identifier: Apache-2.0
//
// Files that Keras 2 and Keras 3 wrote (make_keras.py), through the library: weights value by value
// and outputs against float64, in volup's axes.
#include <gtest/gtest.h>

#include "foreign_case.h"

namespace volup::test {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(VOLUP_TEST_LOAD_DIR) / "keras";

fs::path file_of(const std::string& name) {
  const fs::path whole = kFolder / (name + ".h5");
  return fs::exists(whole) ? whole : kFolder / (name + ".weights.h5");
}

class KerasFile : public testing::TestWithParam<std::string> {};

TEST_P(KerasFile, GivesItsWeightsAndItsFloat64Outputs) {
  const Io io(kFolder / (GetParam() + ".io.h5"));
  const SpokenOptions spoken(io.text("options"));
  volup_model* model = nullptr;
  ASSERT_EQ(volup_model_load(file_of(GetParam()).c_str(), &spoken.options, &model), VOLUP_STATUS_OK)
      << volup_last_error();
  expect_model(model, io);
  expect_converted(model, io, spoken.options, "keras-hdf5");
  expect_checked(file_of(GetParam()), kFolder / (GetParam() + ".io.h5"), io.text("options"));
  const char* json = nullptr;
  ASSERT_EQ(volup_model_describe(model, &json), VOLUP_STATUS_OK);
  const std::string description = json;
  EXPECT_NE(description.find("keras-hdf5"), std::string::npos) << description;
  if (file_of(GetParam()).string().find(".weights.h5") == std::string::npos) {
    const std::string version = "Keras " + GetParam().substr(5, 1);
    EXPECT_NE(description.find(version), std::string::npos) << description;
  }
  volup_model_destroy(model);
}

INSTANTIATE_TEST_SUITE_P(Files, KerasFile, testing::ValuesIn(names_in(kFolder, ".io.h5")),
                         [](const auto& each) { return each.param; });

std::string refusal(const std::string& name, const std::string& flags) {
  const SpokenOptions spoken(flags);
  volup_model* model = nullptr;
  const volup_status status = volup_model_load(file_of(name).c_str(), &spoken.options, &model);
  EXPECT_EQ(status, VOLUP_STATUS_UNSUPPORTED) << name << " " << flags;
  if (status == VOLUP_STATUS_OK) volup_model_destroy(model);
  return status == VOLUP_STATUS_OK ? "" : volup_last_error();
}

void expect_words(const std::string& text, const std::vector<const char*>& words) {
  for (const char* word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << word << "\nin: " << text;
  }
}

// The offset of one voxel that symmetric padding of the same output size would have.
TEST(Keras, SameIsCroppedAtTheEndFirst) {
  const SpokenOptions spoken;
  volup_model* model = nullptr;
  ASSERT_EQ(volup_model_load(file_of("keras3_same_k3s2").c_str(), &spoken.options, &model),
            VOLUP_STATUS_OK)
      << volup_last_error();
  volup_geometry g{};
  g.struct_size = sizeof(g);
  volup_model_geometry(model, &g);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(g.padding_begin[i], 0);
    EXPECT_EQ(g.padding_end[i], 1);
    EXPECT_EQ(g.output_padding[i], 0);
  }
  const char* json = nullptr;
  volup_model_describe(model, &json);
  // Its optimizer's state is none of the model's.
  expect_words(json, {"optimizer_weights/adam/iteration", "softmax_sigmoid", "channels_last"});
  volup_model_destroy(model);
}

TEST(Keras, WhatTheFileLeavesOpenIsAskedFor) {
  expect_words(refusal("keras3_weights", ""),
               {"got no type and no geometry, need epilogue and geometry in the load options "
                "(volup: --type A|B|C and --stride N, with --padding, --output-padding, "
                "--dilation, --groups as they are) for",
                "layers/conv3d_transpose [3, 3, 3, 4, 3]"});
  expect_words(refusal("keras2_weights", "--type softmax_sigmoid"),
               {"got no geometry, need geometry in the load options (volup: --stride N, with"});
  expect_words(refusal("keras3_same_mixed", ""),
               {"got no type, need epilogue in the load options (volup: --type A|B|C) for"});
}

TEST(Keras, OptionsMustAgreeWithTheFile) {
  expect_words(refusal("keras3_same_mixed", "--type logsumexp_swish_clamp --stride 3x2x2"),
               {"stride", "[3, 2, 1]"});
  expect_words(refusal("keras3_same_k3s2", "--type add_hardswish"), {"type", "softmax_sigmoid"});
  expect_words(refusal("keras3_same_k3s2", "--submodule up"),
               {"submodule 'up'", "conv3d_transpose"});
  expect_words(refusal("keras2_weights", "--type softmax_sigmoid --stride 2 --groups 2"),
               {"groups: got 2, need 1"});
}

}  // namespace
}  // namespace volup::test
