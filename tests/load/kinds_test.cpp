// SPDX-License-Identifier: Apache-2.0
//
// One file of each kind that volup loads: what `volup inspect` says of it, as text and as JSON;
// that a path in UTF-8 and the same bytes in memory give the same model; that a converted file says
// where it came from. What the weights are and compute is tested with the kind's other files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "foreign_case.h"
#include "module_under_test.h"
#include "temporary_folder.h"

namespace volup::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Kind {
  const char* kind;
  const char* module;
  const char* file;  // beside this test
  const char* flags;
  const char* producer;
  const char* type;
  const char* weight_dtype;
  int in_channels, out_channels;
  std::vector<std::string> unused;
  const char* sha256;  // by sha256sum
};

std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.kind; }

constexpr const char* kC = "--type add_hardswish --stride 2 --padding 1 --output-padding 1";
const Kind kKinds[] = {
    {"torchscript",
     "libvolup_torchscript.so",
     "../cases/add_seed/traced.pt",
     "",
     "PyTorch (TorchScript file version 3)",
     "add_hardswish",
     "float32",
     32,
     64,
     {"bias"},
     "22c7da7107afe26c20960530bd37473b430aad4d1ec0d46beb5dc898cec2e4b0"},
    {"state_dict",
     "libvolup_checkpoint.so",
     "checkpoints/C_plain.pt",
     kC,
     "PyTorch (torch.save, file version 3)",
     "add_hardswish",
     "float32",
     2,
     4,
     {"bias"},
     "cec8977502fdc82f4a652e8cff16359c105fe99cc949fde24d56390d6bfc3210"},
    {"safetensors",
     "libvolup_checkpoint.so",
     "checkpoints/C.safetensors",
     kC,
     "safetensors (format pt)",
     "add_hardswish",
     "float32",
     2,
     4,
     {"bias"},
     "f0ac7818bab38d44d8fdb2597a264db8ad5783f2d8a1afafe9e065171d2a7ccf"},
    {"state-dict-hdf5",
     "libvolup_hdf5.so",
     "hdf5/wrapped_c.h5",
     kC,
     "",
     "add_hardswish",
     "float32",
     3,
     4,
     {"module.bias"},
     "866166bbc88a6994d05de01b9227be77bd4fb67f8ea5c1bcef750479d92b8e0d"},
    {"keras-hdf5",
     "libvolup_hdf5.so",
     "keras/keras3_same_k3s2.h5",
     "",
     "Keras 3.15.1",
     "softmax_sigmoid",
     "float32",
     3,
     4,
     {"optimizer_weights/adam/iteration", "optimizer_weights/adam/learning_rate",
      "optimizer_weights/adam/sequential_conv3d_transpose_bias_momentum",
      "optimizer_weights/adam/sequential_conv3d_transpose_bias_velocity",
      "optimizer_weights/adam/sequential_conv3d_transpose_kernel_momentum",
      "optimizer_weights/adam/sequential_conv3d_transpose_kernel_velocity"},
     "9c80d03d3b71d70a648964188ad8d6459f0cfe8a2c6e544482d3ad40ac8533dc"},
    {"onnx",
     "libvolup_onnx.so",
     "onnx/constants_in_nodes.onnx",
     "",
     "make_onnx 1",
     "logsumexp_swish_clamp",
     "float32",
     3,
     4,
     {"'never'"},
     "aa8014b49eb4516d84c3063fc3741e97826477c964011cfde37729ff4c32120f"},
    {"volup-hdf5",
     "libvolup_hdf5.so",
     "../../models/add_hardswish.h5",
     "",
     "volup 1.0.0",
     "add_hardswish",
     "float32",
     32,
     64,
     {"bias"},
     "01c052efdd4d7667850c26a5f8aa3b4aa16603b7ae1ffaad85e7c5029754587a"},
};

class EachKind : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (!fs::exists(fs::path(VOLUP_TEST_MODULE_DIR) / GetParam().module)) {
      GTEST_SKIP() << "built without " << GetParam().module;
    }
  }

  static fs::path file() { return fs::path(VOLUP_TEST_LOAD_DIR) / GetParam().file; }
  // What the tool prints; it must end well.
  static std::string tool(const std::string& words) {
    const std::string command = std::string("'") + VOLUP_TEST_TOOL + "' " + words + " -q";
    std::FILE* const pipe = popen(command.c_str(), "r");
    std::string out;
    char buffer[4096];
    for (size_t count; (count = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
      out.append(buffer, count);
    }
    EXPECT_EQ(pclose(pipe), 0) << command;
    return out;
  }
  static std::string inspect(const std::string& more) {
    return tool("inspect '" + file().string() + "' " + GetParam().flags + " " + more);
  }

  const TemporaryFolder folder_;
};

TEST_P(EachKind, IsInspectedAsText) {
  if (*VOLUP_TEST_TOOL == '\0') GTEST_SKIP() << "built without the tool";
  const Kind& need = GetParam();
  const std::string text = inspect("");
  const auto expect_line = [&text](const std::string& key, const std::string& value) {
    const std::string line = key + std::string(16 - key.size(), ' ') + value;
    EXPECT_NE(text.find("\n" + line), std::string::npos) << line << "\nin:\n" << text;
  };
  expect_line("type", need.type + std::string("\n"));
  expect_line("convolution", std::to_string(need.in_channels) + " -> " +
                                 std::to_string(need.out_channels) + " channels, kernel 3");
  expect_line("source", need.kind + std::string(", "));
  if (*need.producer != '\0') expect_line("producer", need.producer + std::string("\n"));
  expect_line("weight dtype", need.weight_dtype + std::string("\n"));
  expect_line("sha256", need.sha256 + std::string("\n"));
  for (const std::string& name : need.unused) expect_line("unused", name + "\n");
}

TEST_P(EachKind, IsInspectedAsJsonOfStableKeys) {
  if (*VOLUP_TEST_TOOL == '\0') GTEST_SKIP() << "built without the tool";
  const Kind& need = GetParam();
  const json model = json::parse(inspect("--json"))["model"];
  const auto keys = [](const json& object) {
    std::vector<std::string> names;
    for (const auto& item : object.items()) names.push_back(item.key());
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(keys(model), Names({"bias", "epilogue", "geometry", "notes", "parameters", "source",
                                "type", "unused"}));
  EXPECT_EQ(keys(model["geometry"]),
            Names({"dilation", "groups", "in_channels", "kernel", "out_channels", "output_padding",
                   "padding_begin", "padding_end", "stride"}));
  EXPECT_EQ(keys(model["source"]), Names({"bytes", "kind", "library", "origin", "path", "producer",
                                          "sha256", "weight_dtype"}));
  EXPECT_EQ(model["type"], need.type);
  EXPECT_EQ(model["geometry"]["in_channels"], need.in_channels);
  EXPECT_EQ(model["geometry"]["out_channels"], need.out_channels);
  EXPECT_EQ(model["geometry"]["kernel"], json({3, 3, 3}));
  EXPECT_EQ(model["source"]["kind"], need.kind);
  EXPECT_EQ(model["source"]["producer"], need.producer);
  EXPECT_EQ(model["source"]["weight_dtype"], need.weight_dtype);
  EXPECT_EQ(model["source"]["sha256"], need.sha256);
  EXPECT_EQ(model["source"]["bytes"], fs::file_size(file()));
  EXPECT_EQ(model["unused"], json(need.unused));
}

TEST_P(EachKind, LoadsFromAPathInUtf8AndFromMemory) {
  const SpokenOptions spoken(GetParam().flags);
  const fs::path path = folder_ / "Größe 模型 \xf0\x9f\xa7\xa0.bin";
  fs::copy_file(file(), path);
  const std::string bytes = read_file(path);
  volup_model* from_path = nullptr;
  ASSERT_EQ(volup_model_load(path.c_str(), &spoken.options, &from_path), VOLUP_STATUS_OK)
      << volup_last_error();
  volup_model* from_memory = nullptr;
  {
    // Freed before the model is used.
    const std::vector<char> mine(bytes.begin(), bytes.end());
    ASSERT_EQ(volup_model_load_memory(mine.data(), mine.size(), &spoken.options, &from_memory),
              VOLUP_STATUS_OK)
        << volup_last_error();
  }
  const auto weights = [](const volup_model* model) {
    const float *weight = nullptr, *bias = nullptr;
    EXPECT_EQ(volup_model_weights(model, &weight, &bias), VOLUP_STATUS_OK);
    const size_t count = static_cast<size_t>(GetParam().in_channels * GetParam().out_channels) * 27;
    std::vector<float> values(weight, weight + count);
    if (bias) values.insert(values.end(), bias, bias + GetParam().out_channels);
    return values;
  };
  EXPECT_EQ(weights(from_path), weights(from_memory));
  const auto source = [](const volup_model* model) {
    const char* text = nullptr;
    EXPECT_EQ(volup_model_describe(model, &text), VOLUP_STATUS_OK);
    return json::parse(text)["source"];
  };
  EXPECT_EQ(source(from_path)["sha256"], GetParam().sha256);
  EXPECT_EQ(source(from_memory)["sha256"], GetParam().sha256);
  EXPECT_EQ(source(from_path)["path"], path.string());
  volup_model_destroy(from_path);
  volup_model_destroy(from_memory);
}

TEST_P(EachKind, IsConvertedWithARecordOfWhereItCameFrom) {
  if (*VOLUP_TEST_TOOL == '\0') GTEST_SKIP() << "built without the tool";
  const Kind& need = GetParam();
  const std::string out = (folder_ / "ü.h5").string();
  tool("convert '" + file().string() + "' '" + out + "' " + need.flags + " > /dev/null");
  const json model = json::parse(tool("inspect '" + out + "' --json"))["model"];
  const json origin = model["source"]["origin"];
  EXPECT_EQ(model["source"]["kind"], "volup-hdf5");
  if (std::string(need.kind) == "volup-hdf5") {
    // What was converted once keeps its first origin.
    EXPECT_EQ(origin["kind"], "torchscript");
    EXPECT_EQ(origin["sha256"], "4ea5a6c74f6ad6b378da7744eb3304a52135d349a1e4033c51784fb07a694c7a");
    return;
  }
  EXPECT_EQ(origin["kind"], need.kind);
  EXPECT_EQ(origin["producer"], need.producer);
  EXPECT_EQ(origin["sha256"], need.sha256);
  EXPECT_EQ(model["unused"], json(need.unused));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EachKind, testing::ValuesIn(kKinds), [](const auto& each) {
  std::string name = each.param.kind;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

// ---- Values that are not finite
// ------------------------------------------------------------------

TEST(NotFinite, IsRefusedOrTakenWithANoteThatIsKeptOnce) {
  if (!fs::exists(fs::path(VOLUP_TEST_MODULE_DIR) / "libvolup_checkpoint.so")) {
    GTEST_SKIP() << "built without the module for files of weights alone";
  }
  SpokenOptions spoken("--type softmax_sigmoid --stride 2 --padding 1 --output-padding 1");
  const fs::path file = fs::path(VOLUP_TEST_LOAD_DIR) / "checkpoints/N_not_finite.pt";
  volup_model* model = nullptr;
  ASSERT_EQ(volup_model_load(file.c_str(), &spoken.options, &model), VOLUP_STATUS_UNSUPPORTED);
  EXPECT_NE(std::string(volup_last_error())
                .find("conv_transpose.weight: got 1 NaN and 0 infinite of 648 values; "
                      "conv_transpose.bias: got 0 NaN and 1 infinite of 6 values, need finite"),
            std::string::npos)
      << volup_last_error();

  spoken.options.flags = VOLUP_LOAD_ALLOW_NONFINITE;
  ASSERT_EQ(volup_model_load(file.c_str(), &spoken.options, &model), VOLUP_STATUS_OK)
      << volup_last_error();
  const auto notes = [](const volup_model* each) {
    const char* text = nullptr;
    EXPECT_EQ(volup_model_describe(each, &text), VOLUP_STATUS_OK);
    return json::parse(text)["notes"];
  };
  const json need = {"weight holds 1 NaN and 0 infinite of 648 values",
                     "bias holds 0 NaN and 1 infinite of 6 values"};
  EXPECT_EQ(notes(model), need);
  const fs::path copy = fs::temp_directory_path() / ("volup-nan-" + std::to_string(getpid()));
  ASSERT_EQ(volup_model_save(model, copy.c_str(), &spoken.options), VOLUP_STATUS_OK);
  volup_model_destroy(model);
  ASSERT_EQ(volup_model_load(copy.c_str(), &spoken.options, &model), VOLUP_STATUS_OK)
      << volup_last_error();
  EXPECT_EQ(notes(model), need);
  volup_model_destroy(model);
  fs::remove(copy);
}

}  // namespace
}  // namespace volup::test
