// SPDX-License-Identifier: Apache-2.0
//
// The TorchScript module against real files: the cases, every spelling of spellings/, files of
// other kinds. What the loaded numbers compute is tested where kernels are.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>
#include <thread>

#include "torchscript_under_test.h"
#include "zip_file.h"

namespace volup::test {
namespace {

namespace fs = std::filesystem;

// ---- Cases -------------------------------------------------------------------------------------

struct CaseRow {
  const char* folder;
  volup_epilogue_kind kind;
  int64_t in, out, groups;
  int64_t kernel[3], stride[3], padding[3], output_padding[3];
  const char* unused;
};
constexpr CaseRow kCases[] = {
    {"add_functional",
     VOLUP_EPILOGUE_ADD_HARDSWISH,
     4,
     8,
     1,
     {3, 3, 3},
     {2, 2, 2},
     {1, 1, 1},
     {1, 1, 1},
     ""},
    {"add_groups2",
     VOLUP_EPILOGUE_ADD_HARDSWISH,
     4,
     8,
     2,
     {3, 3, 3},
     {2, 2, 2},
     {1, 1, 1},
     {1, 1, 1},
     "bias"},
    {"add_seed",
     VOLUP_EPILOGUE_ADD_HARDSWISH,
     32,
     64,
     1,
     {3, 3, 3},
     {2, 2, 2},
     {1, 1, 1},
     {1, 1, 1},
     "bias"},
    {"add_wrapped_module_prefix",
     VOLUP_EPILOGUE_ADD_HARDSWISH,
     4,
     8,
     1,
     {3, 3, 3},
     {2, 2, 2},
     {1, 1, 1},
     {1, 1, 1},
     "module.bias"},
    {"lse_kernel2_stride2",
     VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP,
     5,
     7,
     1,
     {2, 2, 2},
     {2, 2, 2},
     {0, 0, 0},
     {0, 0, 0},
     ""},
    {"lse_nan_inf",
     VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP,
     3,
     16,
     1,
     {3, 3, 3},
     {2, 2, 2},
     {1, 1, 1},
     {0, 0, 0},
     ""},
    {"lse_other_spelling",
     VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP,
     3,
     6,
     1,
     {3, 3, 3},
     {2, 2, 2},
     {1, 1, 1},
     {0, 0, 0},
     ""},
    {"lse_seed",
     VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP,
     3,
     16,
     1,
     {3, 3, 3},
     {2, 2, 2},
     {1, 1, 1},
     {0, 0, 0},
     ""},
    {"softmax_anisotropic",
     VOLUP_EPILOGUE_SOFTMAX_SIGMOID,
     6,
     10,
     1,
     {1, 3, 3},
     {1, 2, 2},
     {0, 1, 1},
     {0, 1, 1},
     ""},
    {"softmax_half_weights",
     VOLUP_EPILOGUE_SOFTMAX_SIGMOID,
     4,
     8,
     1,
     {3, 3, 3},
     {2, 2, 2},
     {1, 1, 1},
     {1, 1, 1},
     ""},
    {"softmax_large_logits",
     VOLUP_EPILOGUE_SOFTMAX_SIGMOID,
     4,
     8,
     1,
     {3, 3, 3},
     {2, 2, 2},
     {1, 1, 1},
     {1, 1, 1},
     ""},
    {"softmax_no_bias",
     VOLUP_EPILOGUE_SOFTMAX_SIGMOID,
     4,
     9,
     1,
     {3, 3, 3},
     {2, 2, 2},
     {1, 1, 1},
     {1, 1, 1},
     ""},
    {"softmax_seed",
     VOLUP_EPILOGUE_SOFTMAX_SIGMOID,
     32,
     64,
     1,
     {3, 3, 3},
     {2, 2, 2},
     {1, 1, 1},
     {1, 1, 1},
     ""},
};

class Cases : public testing::TestWithParam<CaseRow> {};

TEST_P(Cases, GeometryConstantsAndWeightsAreRead) {
  const CaseRow& row = GetParam();
  std::vector<float> first_weight, first_bias;
  int files = 0;
  for (const auto& file : fs::directory_iterator(fs::path(VOLUP_TEST_CASES_DIR) / row.folder)) {
    if (file.path().extension() != ".pt") continue;
    SCOPED_TRACE(file.path().string());
    ++files;
    const std::string bytes = read_file(file.path());
    const Outcome outcome = torchscript().load(bytes);
    ASSERT_TRUE(outcome.ok()) << outcome.text;
    const volup_geometry& g = outcome.model.geometry;
    EXPECT_EQ(g.struct_size, sizeof(volup_geometry));
    EXPECT_EQ(outcome.model.epilogue.kind, row.kind);
    EXPECT_EQ(g.in_channels, row.in);
    EXPECT_EQ(g.out_channels, row.out);
    EXPECT_EQ(g.groups, row.groups);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(g.kernel[i], row.kernel[i]) << i;
      EXPECT_EQ(g.stride[i], row.stride[i]) << i;
      EXPECT_EQ(g.padding_begin[i], row.padding[i]) << i;
      EXPECT_EQ(g.padding_end[i], row.padding[i]) << i;
      EXPECT_EQ(g.output_padding[i], row.output_padding[i]) << i;
      EXPECT_EQ(g.dilation[i], 1) << i;
    }
    // Freezing drops what is not used.
    EXPECT_EQ(outcome.unused(), file.path().stem() == "frozen" ? "" : row.unused);
    EXPECT_STREQ(outcome.model.kind, "torchscript");
    EXPECT_NE(Outcome::or_empty(outcome.model.producer).find("PyTorch"), std::string::npos);
    const bool half = std::string(row.folder) == "softmax_half_weights";
    EXPECT_STREQ(outcome.model.weight_dtype, half ? "float16" : "float32");

    ASSERT_EQ(outcome.model.weight_count,
              row.in * row.out / row.groups * row.kernel[0] * row.kernel[1] * row.kernel[2]);
    if (!half) {
      // Tensors lie in the archive as they are.
      const std::string stored(reinterpret_cast<const char*>(outcome.model.weight),
                               outcome.weight().size() * sizeof(float));
      EXPECT_NE(bytes.find(stored), std::string::npos);
    }
    EXPECT_EQ(outcome.model.bias_count, std::string(row.folder) == "softmax_no_bias" ? 0 : row.out);
    if (first_weight.empty()) {
      first_weight = outcome.weight();
      first_bias = outcome.bias();
    }
    EXPECT_EQ(first_weight, outcome.weight());
    EXPECT_EQ(first_bias, outcome.bias());
  }
  EXPECT_GE(files, 1);
}

INSTANTIATE_TEST_SUITE_P(TorchScript, Cases, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.folder); });

TEST(TorchScriptCases, ConstantsOfTheGate) {
  const Outcome outcome = torchscript().load(case_bytes("lse_kernel2_stride2/traced.pt"));
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  const volup_epilogue& e = outcome.model.epilogue;
  EXPECT_EQ(e.shift, 3.0f);
  EXPECT_EQ(e.divisor, 6.0f);
  EXPECT_EQ(e.subtract, 0.180899307f);
  EXPECT_EQ(e.clamp_min, -1.0f);
  EXPECT_EQ(e.clamp_max, 1.0f);
}

TEST(TorchScriptCases, RefusalsNameTheOperationItsPlaceAndTheNeed) {
  const Outcome relu = torchscript().load(case_bytes("refuse_relu/scripted.pt"));
  EXPECT_EQ(relu.status, VOLUP_STATUS_UNSUPPORTED);
  EXPECT_TRUE(refused_with(relu, "aten::relu")) << relu.text;
  EXPECT_TRUE(refused_with(relu, "case_models.py:63")) << relu.text;
  EXPECT_TRUE(refused_with(relu, "need logsumexp over channels")) << relu.text;
  const Outcome softmax = torchscript().load(case_bytes("refuse_softmax_depth/traced.pt"));
  EXPECT_EQ(softmax.status, VOLUP_STATUS_UNSUPPORTED);
  EXPECT_TRUE(refused_with(softmax, "aten::softmax, over axis 2")) << softmax.text;
}

TEST(TorchScriptCases, BadFilesAreNamedForWhatTheyAre) {
  const struct {
    const char* name;
    const char* word;
  } kBad[] = {{"bad/empty.pt", "empty file"},
              {"bad/state_dict_not_torchscript.pt", "state_dict"},
              {"bad/text.pt", "text"},
              {"bad/truncated.pt", "truncated"}};
  for (const auto& bad : kBad) {
    const Outcome outcome = torchscript().load(case_bytes(bad.name));
    EXPECT_EQ(outcome.status, VOLUP_STATUS_UNREADABLE) << bad.name;
    EXPECT_TRUE(refused_with(outcome, bad.word)) << bad.name << ": " << outcome.text;
  }
}

// ---- Spellings ---------------------------------------------------------------------------------

TEST(TorchScriptSpellings, EachIsReadOrRefusedAsItsLineSays) {
  std::istringstream lines(spelling_bytes("expect.txt"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const size_t tab = line.find('\t'), second = line.find('\t', tab + 1);
    const std::string name = line.substr(0, tab);
    const std::string expect = line.substr(tab + 1, second - tab - 1);
    const std::string word = line.substr(second + 1);
    SCOPED_TRACE(line);
    const Outcome outcome = torchscript().load(spelling_bytes(name));
    if (expect == "refuse") {
      EXPECT_FALSE(outcome.ok());
      EXPECT_TRUE(refused_with(outcome, word)) << outcome.text;
      continue;
    }
    ASSERT_TRUE(outcome.ok()) << outcome.text;
    const volup_epilogue& e = outcome.model.epilogue;
    std::istringstream fields(expect);
    fields.imbue(std::locale::classic());
    char letter = 0;
    fields >> letter;
    EXPECT_EQ("IABC"[e.kind], letter);
    if (letter == 'A') {
      float shift, divisor, subtract, low, high;
      fields >> shift >> divisor >> subtract >> low >> high;
      EXPECT_EQ(std::vector<float>({e.shift, e.divisor, e.subtract, e.clamp_min, e.clamp_max}),
                std::vector<float>({shift, divisor, subtract, low, high}));
    } else if (letter == 'C') {
      float shift, divisor, low, high;
      fields >> shift >> divisor >> low >> high;
      EXPECT_EQ(std::vector<float>({e.shift, e.divisor, e.clamp_min, e.clamp_max}),
                std::vector<float>({shift, divisor, low, high}));
    }
    if (word == "-") {
      EXPECT_EQ(outcome.notes(), "");
    } else {
      EXPECT_NE(outcome.notes().find(word), std::string::npos) << outcome.notes();
    }
  }
  EXPECT_GT(count, 100);
}

Outcome load_submodule(const std::string& name, const char* submodule) {
  volup_load_options options{};
  options.struct_size = sizeof(options);
  options.submodule = submodule;
  return torchscript().load(spelling_bytes(name), options);
}

TEST(TorchScriptSubmodule, ABlockAmongOtherLayersIsPickedOut) {
  for (const char* name : {"RNetwork_scripted.pt", "RNetwork_traced.pt"}) {
    SCOPED_TRACE(name);
    const Outcome whole = torchscript().load(spelling_bytes(name));
    EXPECT_EQ(whole.status, VOLUP_STATUS_UNSUPPORTED);
    EXPECT_TRUE(refused_with(whole, "volup computes 'decoder' (softmax_sigmoid)")) << whole.text;
    EXPECT_TRUE(refused_with(whole, "it also has 'stem' (Conv3d), 'tail' (Conv3d)")) << whole.text;

    const Outcome outer = load_submodule(name, "decoder");
    const Outcome inner = load_submodule(name, "module.decoder.0");
    ASSERT_TRUE(outer.ok()) << outer.text;
    ASSERT_TRUE(inner.ok()) << inner.text;
    EXPECT_EQ(outer.model.epilogue.kind, VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
    EXPECT_EQ(outer.model.geometry.in_channels, 2);
    EXPECT_EQ(outer.model.geometry.out_channels, 3);
    EXPECT_EQ(outer.weight(), inner.weight());
    EXPECT_STREQ(outer.model.weight_name, "decoder.0.up.weight");
    EXPECT_STREQ(outer.model.bias_name, "decoder.0.up.bias");
    EXPECT_EQ(outer.unused(), "decoder.0.bias\nstem.bias\nstem.weight\ntail.bias\ntail.weight");
    EXPECT_NE(outer.notes().find("submodule 'decoder'"), std::string::npos) << outer.notes();
  }
}

TEST(TorchScriptSubmodule, WhatIsNotThereOrNoBlockIsRefused) {
  const Outcome missing = load_submodule("RNetwork_scripted.pt", "encoder");
  EXPECT_EQ(missing.status, VOLUP_STATUS_UNSUPPORTED);
  EXPECT_TRUE(refused_with(missing, "got 'encoder', need one of 'stem' (Conv3d), 'decoder'"));
  const Outcome other = load_submodule("RNetwork_scripted.pt", "stem");
  EXPECT_TRUE(refused_with(other, "submodule 'stem': operation: got aten::conv3d")) << other.text;
  const Outcome frozen = load_submodule("RNetwork_frozen.pt", "decoder");
  EXPECT_TRUE(refused_with(frozen, "a frozen one has none left")) << frozen.text;
}

TEST(TorchScriptSpellings, EveryAxisOfTheGeometryIsItsOwn) {
  const Outcome outcome = torchscript().load(spelling_bytes("BFunctionalConvolution_traced.pt"));
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  const volup_geometry& g = outcome.model.geometry;
  const auto axes = [](const int64_t(&values)[3]) {
    return std::vector<int64_t>(values, values + 3);
  };
  using Axes = std::vector<int64_t>;
  EXPECT_EQ(axes(g.kernel), Axes({1, 2, 3}));
  EXPECT_EQ(axes(g.stride), Axes({1, 2, 3}));
  EXPECT_EQ(axes(g.padding_begin), Axes({0, 0, 1}));
  EXPECT_EQ(axes(g.output_padding), Axes({0, 1, 2}));
  EXPECT_EQ(axes(g.dilation), Axes({3, 1, 1}));
  EXPECT_EQ(g.in_channels, 2);
  EXPECT_EQ(g.out_channels, 4);
  EXPECT_EQ(g.groups, 2);
}

// The weights as the archive stores them, by the size of their entry.
template <typename Stored>
std::vector<Stored> stored_weights(const std::string& name) {
  std::vector<Stored> values(2 * 3 * 2 * 2 * 2);
  for (const Entry& entry : entries_of(spelling_bytes(name))) {
    if (entry.name.find("/data/") == std::string::npos ||
        entry.content.size() != values.size() * sizeof(Stored)) {
      continue;
    }
    std::memcpy(values.data(), entry.content.data(), entry.content.size());
    return values;
  }
  ADD_FAILURE() << "no weights in " << name;
  return values;
}

TEST(TorchScriptSpellings, WeightsOfOtherTypesAndStridesAreConverted) {
  const auto loaded = [](const char* name, const char* type) {
    const Outcome outcome = torchscript().load(spelling_bytes(name));
    EXPECT_TRUE(outcome.ok()) << outcome.text;
    EXPECT_STREQ(outcome.model.weight_dtype, type);
    return outcome.weight();
  };
  const auto wide = stored_weights<double>("weights_double.pt");
  EXPECT_EQ(loaded("weights_double.pt", "float64"), std::vector<float>(wide.begin(), wide.end()));

  std::vector<float> brain;
  for (const uint16_t bits : stored_weights<uint16_t>("weights_bfloat16.pt")) {
    brain.push_back(std::bit_cast<float>(uint32_t{bits} << 16));
  }
  EXPECT_EQ(loaded("weights_bfloat16.pt", "bfloat16"), brain);

  std::vector<float> half;
  for (const uint16_t bits : stored_weights<uint16_t>("weights_half.pt")) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double value =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    half.push_back(static_cast<float>(bits >> 15 ? -value : value));
  }
  EXPECT_EQ(loaded("weights_half.pt", "float16"), half);

  // Stored [in, D, H, W, out].
  const auto last = stored_weights<float>("weights_channels_last.pt");
  std::vector<float> dense;
  for (int in = 0; in < 2; ++in) {
    for (int out = 0; out < 3; ++out) {
      for (int tap = 0; tap < 8; ++tap) dense.push_back(last[(in * 8 + tap) * 3 + out]);
    }
  }
  EXPECT_EQ(loaded("weights_channels_last.pt", "float32"), dense);
}

// ---- Manners -----------------------------------------------------------------------------------

TEST(TorchScriptModule, LoadsFromSeveralThreads) {
  const std::string bytes = case_bytes("softmax_anisotropic/scripted.pt");
  const Outcome first = torchscript().load(bytes);
  ASSERT_TRUE(first.ok()) << first.text;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        const Outcome outcome = torchscript().load(bytes);
        wrong[t] += !outcome.ok() || outcome.weight() != first.weight();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(wrong.size(), 0));
}

TEST(TorchScriptModule, PrintsNothing) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  torchscript().load(case_bytes("lse_seed/traced.pt"));
  torchscript().load(case_bytes("refuse_relu/scripted.pt"));
  torchscript().load(spelling_bytes("other_broken_code.pt"));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(TorchScriptModule, SaysWhatItStandsOnAndCannotWrite) {
  EXPECT_NE(std::string(torchscript().abi().library).find("libtorch"), std::string::npos);
  EXPECT_EQ(torchscript().abi().save, nullptr);
}

}  // namespace
}  // namespace volup::test
