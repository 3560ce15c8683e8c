// SPDX-License-Identifier: Apache-2.0
//
// HDF5 files that are not volup's: state_dicts dumped by h5py (make_hdf5.py), through the library;
// layouts of Keras that its newest versions no longer write, made here through HDF5's own API
// (synthetic); damaged and absurd files.
#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <functional>
#include <numeric>
#include <random>

#include "foreign_case.h"
#include "hdf5_under_test.h"

namespace volup::test {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(VOLUP_TEST_LOAD_DIR) / "hdf5";

// ---- State dicts --------------------------------------------------------------------------------

class StateDictFile : public testing::TestWithParam<std::string> {};

TEST_P(StateDictFile, GivesItsWeightsAndItsFloat64Outputs) {
  const Io io(kFolder / (GetParam() + ".io.h5"));
  const SpokenOptions spoken(io.text("options"));
  volup_model* model = nullptr;
  ASSERT_EQ(volup_model_load((kFolder / (GetParam() + ".h5")).c_str(), &spoken.options, &model),
            VOLUP_STATUS_OK)
      << volup_last_error();
  expect_model(model, io);
  expect_converted(model, io, spoken.options, "state-dict-hdf5");
  expect_checked(kFolder / (GetParam() + ".h5"), kFolder / (GetParam() + ".io.h5"),
                 io.text("options"));
  volup_model_destroy(model);
}

INSTANTIATE_TEST_SUITE_P(Files, StateDictFile, testing::ValuesIn(names_in(kFolder, ".io.h5")),
                         [](const auto& each) { return each.param; });

Outcome load(const std::string& name, const std::string& flags) {
  const SpokenOptions spoken(flags);
  return hdf5().load(read_file(kFolder / (name + ".h5")), spoken.options);
}

void expect_refused(const Outcome& outcome, const std::vector<const char*>& words,
                    volup_status status = VOLUP_STATUS_UNSUPPORTED) {
  EXPECT_EQ(outcome.status, status) << outcome.text;
  for (const char* word : words) {
    EXPECT_NE(outcome.text.find(word), std::string::npos) << word << "\nin: " << outcome.text;
  }
}

constexpr const char* kA = "--type logsumexp_swish_clamp --stride 2 --padding 1";

TEST(StateDict, ItsScalarBiasIsSubtracted) {
  const Outcome outcome = load("flat_a", kA);
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  EXPECT_NE(outcome.model.epilogue.subtract, 0.0f);
  EXPECT_EQ(outcome.unused(), "");
  EXPECT_STREQ(outcome.model.kind, "state-dict-hdf5");
  EXPECT_STREQ(outcome.model.weight_name, "conv_transpose.weight");
  EXPECT_STREQ(outcome.model.weight_dtype, "float32");
}

TEST(StateDict, ABiasThatIsNotUsedIsReported) {
  const Outcome outcome =
      load("wrapped_c", "--type add_hardswish --stride 2 --padding 1 --output-padding 1");
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  EXPECT_EQ(outcome.unused(), "module.bias");
  EXPECT_EQ(outcome.model.epilogue.subtract, 0.0f);
}

TEST(StateDict, StoredTypesAreReported) {
  EXPECT_STREQ(load("packed_float16", kA).model.weight_dtype, "float16");
  EXPECT_STREQ(load("packed_big_endian", kA).model.weight_dtype, "float32");
  EXPECT_STREQ(load("float64", kA).model.weight_dtype, "float64");
}

TEST(StateDict, WhatTheFileLeavesOpenIsAskedForWithTheCandidates) {
  expect_refused(
      load("flat_a", ""),
      {"got no type and no geometry, need epilogue and geometry in "
       "the load options (volup: --type A|B|C and --stride N, with --padding, --output-padding",
       "conv_transpose [3, 4, 3, 3, 3]"});
  expect_refused(load("two_blocks", ""),
                 {"need one, or --submodule", "encoder.conv_transpose [4, 4, 2, 2, 2]",
                  "decoder.conv_transpose", "head [4, 4, 3, 3, 3]", "no type"});
  expect_refused(load("two_blocks", "--type identity --stride 1 --submodule up"),
                 {"submodule 'up': got none of that name, need one of"});
}

TEST(StateDict, OptionsThatDoNotFitTheShapeAreNamed) {
  SpokenOptions spoken(kA);
  spoken.geometry.in_channels = 5;
  spoken.geometry.kernel[1] = 4;
  expect_refused(hdf5().load(read_file(kFolder / "flat_a.h5"), spoken.options),
                 {"in_channels: got 3", "need 5", "kernel on axis H: got 3", "need 4"});
  // C's bias is no number to subtract; groups change what the bias must be.
  expect_refused(load("wrapped_c", kA), {"shape of module.bias: got [4, 1, 1, 1, 1], need one"});
  expect_refused(load("flat_a", std::string(kA) + " --groups 3"),
                 {"shape of conv_transpose.bias: got [4], need [12]"});
}

TEST(StateDict, AFilterThatIsMissingIsNamed) {
  expect_refused(load("refuse_lzf", kA), {"filter: got 32000 'lzf'", "conv_transpose.weight"});
}

TEST(StateDict, TruncatedFilesAreRefused) {
  const std::string good = read_file(kFolder / "packed_float16.h5");
  const SpokenOptions spoken(kA);
  for (size_t size = 0; size < good.size(); size += 1 + size / 64) {
    const Outcome outcome = hdf5().load(good.substr(0, size), spoken.options);
    ASSERT_EQ(outcome.status, VOLUP_STATUS_UNREADABLE) << "first " << size << " bytes";
    ASSERT_FALSE(outcome.text.empty());
  }
}

// With fletcher32 a changed byte of data never passes.
TEST(StateDict, ChangedBytesGiveWordsOrTheSameWeights) {
  const std::string good = read_file(kFolder / "float64.h5");
  const SpokenOptions spoken(kA);
  const Outcome whole = hdf5().load(good, spoken.options);
  ASSERT_TRUE(whole.ok()) << whole.text;
  const std::vector<float> weight = whole.weight();
  const auto first = static_cast<double>(weight[0]);
  // Stored big-endian.
  std::string stored(reinterpret_cast<const char*>(&first), sizeof(first));
  std::reverse(stored.begin(), stored.end());
  const size_t at = good.find(stored);
  ASSERT_NE(at, std::string::npos);
  std::mt19937_64 random(77);
  for (int round = 0; round < 300; ++round) {
    std::string bad = good;
    const size_t place = at + random() % (weight.size() * sizeof(double));
    bad[place] = static_cast<char>(bad[place] ^ (1 << random() % 8));
    const Outcome outcome = hdf5().load(bad, spoken.options);
    ASSERT_EQ(outcome.status, VOLUP_STATUS_UNREADABLE) << "seed 77 round " << round;
    ASSERT_NE(outcome.text.find("checksum"), std::string::npos) << outcome.text;
  }
}

// ---- Files made here ----------------------------------------------------------------------------

// A file under construction.
class Made : public Hdf5Module {
 protected:
  Outcome load(const std::function<void(hid_t)>& make, const std::string& flags) {
    const fs::path path = this->path("m.h5");
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    make(file);
    EXPECT_GE(H5Fclose(file), 0);
    const SpokenOptions spoken(flags);
    return hdf5().load(read_file(path), spoken.options);
  }
};

hid_t make_group(hid_t place, const std::string& name) {
  const hid_t links = H5Pcreate(H5P_LINK_CREATE);
  H5Pset_create_intermediate_group(links, 1);
  const hid_t group = H5Gcreate2(place, name.c_str(), links, H5P_DEFAULT, H5P_DEFAULT);
  H5Pclose(links);
  return group;
}

void put_floats(hid_t place, const std::string& name, const std::vector<hsize_t>& shape,
                const std::vector<float>& values) {
  const hid_t links = H5Pcreate(H5P_LINK_CREATE);
  H5Pset_create_intermediate_group(links, 1);
  const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  const hid_t id =
      H5Dcreate2(place, name.c_str(), H5T_IEEE_F32LE, space, links, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(H5Dwrite(id, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  H5Dclose(id);
  H5Sclose(space);
  H5Pclose(links);
}

enum class Strings { kFixed, kVariable };

void put_strings(hid_t place, const char* name, const std::vector<std::string>& texts, Strings kind,
                 bool scalar = false) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  size_t width = 1;
  for (const std::string& text : texts) width = std::max(width, text.size());
  H5Tset_size(type, kind == Strings::kVariable ? H5T_VARIABLE : width);
  if (kind == Strings::kFixed) H5Tset_strpad(type, H5T_STR_NULLPAD);
  const hsize_t count = texts.size();
  const hid_t space = scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr);
  const hid_t id = H5Acreate2(place, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(id, 0) << name;
  std::vector<const char*> pointers;
  std::string cells;
  for (const std::string& text : texts) {
    pointers.push_back(text.c_str());
    std::string cell = text;
    cell.resize(width, '\0');
    cells += cell;
  }
  ASSERT_GE(H5Awrite(id, type,
                     kind == Strings::kVariable ? static_cast<const void*>(pointers.data())
                                                : cells.data()),
            0);
  H5Aclose(id);
  H5Sclose(space);
  H5Tclose(type);
}

// Kernel [1, 2, 3, out 2, in 4] whose value at each place says where it is.
std::vector<float> numbered_kernel() {
  std::vector<float> values(48);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}
std::vector<float> numbered_weight() {
  std::vector<float> values;
  for (int i = 0; i < 4; ++i) {
    for (int o = 0; o < 2; ++o) {
      for (int tap = 0; tap < 6; ++tap) values.push_back(static_cast<float>((tap * 2 + o) * 4 + i));
    }
  }
  return values;
}

const std::string kConfig =
    R"({"class_name": "Sequential", "config": {"name": "s", "layers": [{"class_name": )"
    R"("Conv3DTranspose", "config": {"name": "up", "filters": 2, "kernel_size": [1, 2, 3], )"
    R"("strides": [2, 2, 2], "padding": "same", "data_format": "channels_last", "activation": )"
    R"("linear", "use_bias": true}}]}})";

// The layout of Keras 1 and 2: attributes of fixed or variable length, one list or numbered parts.
void write_keras(hid_t file, const std::string& base, Strings kind, bool in_parts,
                 const std::string& config, size_t bias_size = 2) {
  if (!config.empty()) put_strings(file, "model_config", {config}, kind, true);
  const hid_t place = base.empty() ? H5Gopen2(file, "/", H5P_DEFAULT) : make_group(file, base);
  put_strings(place, "keras_version", {"2.1.6"}, kind, true);
  if (in_parts) {
    put_strings(place, "layer_names0", {"input", "drop"}, kind);
    put_strings(place, "layer_names1", {"up"}, kind);
  } else {
    put_strings(place, "layer_names", {"input", "drop", "up"}, kind);
  }
  for (const char* name : {"input", "drop"}) {
    const hid_t layer = make_group(place, name);
    // What numpy makes of an empty list.
    const hsize_t none = 0;
    const hid_t space = H5Screate_simple(1, &none, nullptr);
    const hid_t id =
        H5Acreate2(layer, "weight_names", H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Aclose(id);
    H5Sclose(space);
    H5Gclose(layer);
  }
  const hid_t layer = make_group(place, "up");
  if (in_parts) {
    put_strings(layer, "weight_names0", {"up/kernel:0"}, kind);
    put_strings(layer, "weight_names1", {"up/bias:0"}, kind);
  } else {
    put_strings(layer, "weight_names", {"up/kernel:0", "up/bias:0"}, kind);
  }
  put_floats(layer, "up/kernel:0", {1, 2, 3, 2, 4}, numbered_kernel());
  put_floats(layer, "up/bias:0", {bias_size}, std::vector<float>(bias_size, 0.5f));
  H5Gclose(layer);
  H5Gclose(place);
}

TEST_F(Made, KerasAttributesOfEveryLayoutReadAlike) {
  for (const Strings kind : {Strings::kFixed, Strings::kVariable}) {
    for (const bool in_parts : {false, true}) {
      for (const bool whole : {false, true}) {
        SCOPED_TRACE(testing::Message() << "variable " << (kind == Strings::kVariable) << " parts "
                                        << in_parts << " whole " << whole);
        const Outcome outcome = load(
            [&](hid_t file) {
              write_keras(file, whole ? "model_weights" : "", kind, in_parts, whole ? kConfig : "");
            },
            whole ? "--type softmax_sigmoid" : "--type softmax_sigmoid --stride 2");
        ASSERT_TRUE(outcome.ok()) << outcome.text;
        EXPECT_EQ(outcome.weight(), numbered_weight());
        EXPECT_EQ(outcome.bias(), std::vector<float>(2, 0.5f));
        EXPECT_EQ(outcome.model.geometry.in_channels, 4);
        EXPECT_EQ(outcome.model.geometry.out_channels, 2);
        if (whole) {
          // `same`, stride 2: kernels of 1, 2 and 3 lack a voxel, fit, and have one too many.
          const volup_geometry& g = outcome.model.geometry;
          EXPECT_EQ((std::vector<int64_t>(g.padding_end, g.padding_end + 3)),
                    (std::vector<int64_t>{0, 0, 1}));
          EXPECT_EQ((std::vector<int64_t>(g.output_padding, g.output_padding + 3)),
                    (std::vector<int64_t>{1, 0, 0}));
        } else {
          EXPECT_STREQ(outcome.model.producer, "Keras 2.1.6");
        }
      }
    }
  }
}

TEST_F(Made, EveryFaultOfAKerasModelIsNamedAtOnce) {
  std::string config = kConfig;
  const auto change = [&config](const std::string& from, const std::string& to) {
    config.replace(config.find(from), from.size(), to);
  };
  change("\"linear\"", "\"relu\"");
  change("\"same\"", "\"causal\"");
  change("[2, 2, 2]", "[2, 0, 2]");
  change("channels_last", "anything");
  const Outcome outcome = load(
      [&](hid_t file) { write_keras(file, "model_weights", Strings::kFixed, false, config); }, "");
  expect_refused(outcome,
                 {"activation: got '\"relu\"', need linear (layer 'up')",
                  "padding: got '\"causal\"', need same or valid", "strides: got '[2,0,2]'",
                  "data_format: got '\"anything\"'", "got no type"});
}

TEST_F(Made, OtherLayersAreListed) {
  std::string config = kConfig;
  const std::string more = R"({"class_name": "ReLU", "config": {"name": "r"}}, )";
  config.insert(config.find("{\"class_name\": \"Conv3DTranspose\""), more);
  const auto write = [&](hid_t file) {
    write_keras(file, "model_weights", Strings::kFixed, false, config);
  };
  expect_refused(load(write, "--type softmax_sigmoid"),
                 {"other layers: got 'r' (ReLU)", "--submodule up"});
  EXPECT_TRUE(load(write, "--type softmax_sigmoid --submodule up").ok());
  config = R"({"class_name": "Sequential", "config": [{"class_name": "Conv3D", "config": {}}]})";
  expect_refused(load(write, "--type softmax_sigmoid"), {"layers: got '' (Conv3D), need a Conv3D"});
  config = "{";
  expect_refused(load(write, ""), {"attribute model_config: got '{', need a Keras model's JSON"});
}

// A Conv3D has its axes the other way round; its bias betrays it.
TEST_F(Made, ABiasThatDoesNotFitIsAFault) {
  const Outcome outcome =
      load([](hid_t file) { write_keras(file, "", Strings::kVariable, false, "", 4); },
           "--type softmax_sigmoid --stride 2");
  expect_refused(outcome, {"shape of up/up/bias:0: got [4], need [2]"});
}

TEST_F(Made, CyclicAndDeepGroupsAreRefused) {
  const auto weight = [](hid_t file) { put_floats(file, "weight", {1, 1, 1, 1, 1}, {1}); };
  expect_refused(load(
                     [&](hid_t file) {
                       weight(file);
                       const hid_t group = make_group(file, "a");
                       H5Lcreate_hard(file, "/", group, "again", H5P_DEFAULT, H5P_DEFAULT);
                       H5Gclose(group);
                     },
                     "--type identity --stride 1"),
                 {"group: got one that is in the file twice or inside itself"});
  expect_refused(load(
                     [&](hid_t file) {
                       weight(file);
                       std::string path = "g";
                       for (int i = 0; i < 100; ++i) path += "/g";
                       H5Gclose(make_group(file, path));
                     },
                     "--type identity --stride 1"),
                 {"groups: got more than 64 inside each other"});
}

// Found by hdf5_fuzz: HDF5 1.10.8 never came back from the first and read past its memory with the
// second.
TEST(Damage, AGlobalHeapThatIsNotSoundIsRefused) {
  const fs::path folder = fs::path(VOLUP_TEST_LOAD_DIR) / "../fuzz/hdf5";
  for (const char* name : {"global_heap_of_size_0.h5", "global_heap_object_too_large.h5"}) {
    SCOPED_TRACE(name);
    expect_refused(hdf5().load(read_file(folder / name)), {"global heap: got an object of"},
                   VOLUP_STATUS_UNREADABLE);
  }
}

TEST_F(Made, LinksToElsewhereAreNotFollowed) {
  const Outcome outcome = load(
      [](hid_t file) {
        put_floats(file, "up/weight", {1, 1, 1, 1, 2}, {1, 2});
        H5Lcreate_external("/etc/passwd", "/", file, "outside", H5P_DEFAULT, H5P_DEFAULT);
        H5Lcreate_soft("/up/weight", file, "down.weight", H5P_DEFAULT, H5P_DEFAULT);
      },
      "--type identity --stride 1");
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  EXPECT_EQ(outcome.weight(), (std::vector<float>{1, 2}));
  EXPECT_EQ(outcome.unused(), "down.weight\noutside");
}

TEST_F(Made, OneParameterUnderTwoNamesIsAFault) {
  expect_refused(load(
                     [](hid_t file) {
                       put_floats(file, "weight", {1, 1, 1, 1, 2}, {1, 2});
                       put_floats(file, "module.weight", {1, 1, 1, 1, 2}, {3, 4});
                     },
                     "--type identity --stride 1"),
                 {"parameter 'weight': got module.weight and weight, need one"});
}

}  // namespace
}  // namespace volup::test
