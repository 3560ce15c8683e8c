// SPDX-License-Identifier: Apache-2.0
//
// The module for files of weights alone: every file of checkpoints/ (make_checkpoints.py), and
// files made from those by damage. What the loaded numbers compute is tested by the tool's tests.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <random>
#include <sstream>

#include "module_under_test.h"
#include "zip_file.h"

namespace volup::test {
namespace {

namespace fs = std::filesystem;

const ModuleUnderTest& checkpoint() {
  static const ModuleUnderTest* const module = new ModuleUnderTest("libvolup_checkpoint.so");
  return *module;
}

std::string bytes_of(const std::string& name) {
  return read_file(fs::path(VOLUP_TEST_CHECKPOINTS_DIR) / name);
}

bool says(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

// "C stride=2 padding=1 submodule=up ignore_crc" as volup_load_options.
class Options {
 public:
  explicit Options(const std::string& text) {
    whole.struct_size = sizeof(whole);
    geometry_.struct_size = sizeof(geometry_);
    epilogue_.struct_size = sizeof(epilogue_);
    geometry_.groups = 1;
    each_axis(geometry_.dilation, 1);
    std::istringstream words(text);
    for (std::string word; words >> word;) take(word);
  }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  volup_load_options whole{};

 private:
  static void each_axis(int64_t (&axes)[3], int64_t value) {
    for (int64_t& axis : axes) axis = value;
  }
  void take(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (name.size() == 1) {
      epilogue_.kind = static_cast<int32_t>(std::string("IABC").find(name));
      epilogue_.shift = 3;
      epilogue_.divisor = 6;
      epilogue_.clamp_min = name == "A" ? -1 : 0;
      epilogue_.clamp_max = name == "A" ? 1 : 6;
      whole.epilogue = &epilogue_;
    } else if (name == "submodule") {
      submodule_ = value;
      whole.submodule = submodule_.c_str();
    } else if (name == "ignore_crc") {
      whole.flags |= VOLUP_LOAD_IGNORE_CRC;
    } else if (name == "subtract") {
      epilogue_.subtract = std::stof(value);
    } else {
      whole.geometry = &geometry_;
      const int64_t number = std::stoll(value);
      if (name == "stride") each_axis(geometry_.stride, number);
      if (name == "output_padding") each_axis(geometry_.output_padding, number);
      if (name == "kernel") each_axis(geometry_.kernel, number);
      if (name == "groups") geometry_.groups = number;
      if (name == "in") geometry_.in_channels = number;
      if (name == "out") geometry_.out_channels = number;
      if (name == "padding") {
        each_axis(geometry_.padding_begin, number);
        each_axis(geometry_.padding_end, number);
      }
    }
  }

  volup_geometry geometry_{};
  volup_epilogue epilogue_{};
  std::string submodule_;
};

const char* const kB = "B stride=2 padding=1 output_padding=1";

// The values of make_checkpoints.py.
std::vector<float> weight_values(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i * 37 % 101 - 50) / 64);
  return values;
}
std::vector<float> bias_values(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i * 11 % 17 - 8) / 8);
  return values;
}

std::string stored_type(const std::string& name) {
  if (says(name, "_half")) return "float16";
  if (says(name, "_bfloat16")) return "bfloat16";
  return says(name, "_double") ? "float64" : "float32";
}

void expect_loaded(const std::string& name, const Options& options, const Outcome& outcome) {
  const volup_module_model& m = outcome.model;
  const volup_geometry& g = m.geometry;
  EXPECT_EQ(m.epilogue.kind, options.whole.epilogue->kind);
  EXPECT_EQ(m.epilogue.subtract, m.epilogue.kind == 1 && name != "A_no_scalar.pt" ? 0.25f : 0.0f);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(g.kernel[i], 3);
    EXPECT_EQ(g.stride[i], options.whole.geometry->stride[i]);
    EXPECT_EQ(g.padding_end[i], options.whole.geometry->padding_end[i]);
  }
  constexpr int64_t kIn[] = {0, 3, 4, 2}, kOut[] = {0, 4, 6, 4};
  EXPECT_EQ(g.in_channels, kIn[m.epilogue.kind]);
  EXPECT_EQ(g.out_channels, kOut[m.epilogue.kind]);
  EXPECT_EQ(outcome.weight(), weight_values(g.in_channels * g.out_channels / g.groups * 27));
  const bool has_bias = name != "B_no_bias.pt";
  EXPECT_EQ(outcome.bias(), has_bias ? bias_values(g.out_channels) : std::vector<float>());
  EXPECT_STREQ(m.weight_dtype, stored_type(name).c_str());
  const bool is_zip = fs::path(name).extension() == ".pt";
  EXPECT_STREQ(m.kind, is_zip ? "state_dict" : "safetensors");
  EXPECT_TRUE(says(m.producer, is_zip ? "PyTorch (torch.save" : "safetensors")) << m.producer;
  EXPECT_TRUE(says(m.weight_name, "weight")) << m.weight_name;
}

TEST(Checkpoints, EachIsReadOrRefusedAsItsLineSays) {
  std::istringstream lines(bytes_of("expect.txt"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    SCOPED_TRACE(line);
    std::vector<std::string> fields(1);
    for (const char c : line) {
      if (c == '\t') {
        fields.emplace_back();
      } else {
        fields.back() += c;
      }
    }
    ASSERT_EQ(fields.size(), 5u);
    const std::string &name = fields[0], &expect = fields[2], &word = fields[3];
    if (expect == "kind") continue;  // refused before any module sees it
    const Options options(fields[1]);
    const Outcome outcome = checkpoint().load(bytes_of(name), options.whole);
    if (expect == "refuse") {
      ASSERT_FALSE(outcome.ok());
      EXPECT_TRUE(says(outcome.text, word)) << outcome.text;
      continue;
    }
    ASSERT_TRUE(outcome.ok()) << outcome.text;
    EXPECT_TRUE(word == "-" || says(outcome.notes(), word)) << outcome.notes();
    if (expect == "not_finite") continue;
    std::string unused = fields[4] == "-" ? "" : fields[4];
    for (char& c : unused) c = c == ',' ? '\n' : c;
    if (unused != "*") {
      EXPECT_EQ(outcome.unused(), unused);
    }
    expect_loaded(name, options, outcome);
  }
  EXPECT_GT(count, 70);
  EXPECT_FALSE(fs::exists("/tmp/volup_pickle_was_executed"));
}

// ---- Damage ------------------------------------------------------------------------------------

Outcome load_b(const std::string& bytes) {
  const Options options(kB);
  return checkpoint().load(bytes, options.whole);
}

TEST(CheckpointDamage, EveryEntryThatDoesNotFitItsChecksumIsNamedAtOnce) {
  std::string bad = bytes_of("B_plain.pt");
  std::vector<std::string> names;
  for (const Entry& entry : entries_of(bad)) {
    if (!says(entry.name, "/data/")) continue;
    bad[entry.data] = static_cast<char>(bad[entry.data] ^ 0x10);
    names.push_back(entry.name);
  }
  ASSERT_EQ(names.size(), 2u);
  const Outcome outcome = load_b(bad);
  EXPECT_EQ(outcome.status, VOLUP_STATUS_UNREADABLE);
  for (const std::string& name : names) EXPECT_TRUE(says(outcome.text, name)) << outcome.text;
  EXPECT_TRUE(says(outcome.text, "--ignore-crc")) << outcome.text;
  const Options ignoring(std::string(kB) + " ignore_crc");
  const Outcome ignored = checkpoint().load(bad, ignoring.whole);
  ASSERT_TRUE(ignored.ok()) << ignored.text;
  EXPECT_NE(ignored.weight(), weight_values(ignored.model.weight_count));
}

TEST(CheckpointDamage, EveryTruncationIsRefused) {
  for (const char* name : {"B_half.pt", "B_half.safetensors"}) {
    const std::string good = bytes_of(name);
    for (size_t size = 0; size < good.size(); ++size) {
      const Outcome outcome = load_b(good.substr(0, size));
      ASSERT_EQ(outcome.status, VOLUP_STATUS_UNREADABLE) << name << ", first " << size << " bytes";
      ASSERT_FALSE(outcome.text.empty());
    }
    EXPECT_FALSE(load_b(good + '\0').ok()) << name;
  }
}

TEST(CheckpointDamage, AByteAnywhereOfAZipGivesTheSameModelOrWords) {
  const std::string good = bytes_of("B_plain.pt");
  std::mt19937_64 random(20240611);
  int accepted = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string bad = good;
    const size_t at = random() % bad.size();
    bad[at] = static_cast<char>(bad[at] ^ 1 << (random() % 8));
    const Outcome outcome = load_b(bad);
    if (!outcome.ok()) {
      ASSERT_FALSE(outcome.text.empty()) << "seed 20240611, round " << i << ", byte " << at;
      continue;
    }
    ++accepted;
    ASSERT_EQ(outcome.weight(), weight_values(648)) << "byte " << at;
    ASSERT_EQ(outcome.bias(), bias_values(6)) << "byte " << at;
  }
  EXPECT_LT(accepted, 2500);
}

// Under checksums that fit, and without any.
TEST(CheckpointDamage, ChangedContentNeverCrashes) {
  std::mt19937_64 random(78);
  const auto change = [&random](std::string* content) {
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < changes && !content->empty(); ++i) {
      const size_t at = random() % content->size();
      switch (random() % 3) {
        case 0:
          (*content)[at] = static_cast<char>(random());
          break;
        case 1:
          content->erase(at, 1 + random() % 4);
          break;
        default:
          content->insert(at, content->substr(random() % content->size(), 5));
      }
    }
  };
  for (const char* name : {"B_checkpoint.pt", "B_shared_storage.pt", "B_network.pt"}) {
    const std::vector<Entry> good = entries_of(bytes_of(name));
    for (int round = 0; round < 3000; ++round) {
      std::vector<Entry> entries = good;
      for (Entry& entry : entries) {
        if (says(entry.name, "data.pkl")) change(&entry.content);
      }
      const Options options(std::string(kB) + " submodule=decoder.up1");
      const Outcome outcome = round % 2 == 0 ? load_b(zip_of(entries))
                                             : checkpoint().load(zip_of(entries), options.whole);
      ASSERT_TRUE(outcome.ok() || !outcome.text.empty()) << name << ", seed 78, round " << round;
    }
  }
  for (int round = 0; round < 6000; ++round) {
    std::string bytes = bytes_of("B_network.safetensors");
    std::string header = bytes.substr(0, 900);
    change(&header);
    const Outcome outcome = load_b(header + bytes.substr(900));
    ASSERT_TRUE(outcome.ok() || !outcome.text.empty()) << "seed 78, round " << round;
  }
}

// ---- Pickles that no sound program writes ------------------------------------------------------

std::string number(uint32_t value) {
  std::string out;
  append(&out, value);
  return out;
}
std::string text(const std::string& value) {
  return "X" + number(static_cast<uint32_t>(value.size())) + value;
}

Outcome load_pickle(const std::string& pickle) {
  std::vector<Entry> entries = entries_of(bytes_of("B_plain.pt"));
  for (Entry& entry : entries) {
    if (says(entry.name, "data.pkl")) entry.content = "\x80\x02" + pickle + ".";
  }
  return load_b(zip_of(entries));
}

// A tensor of 648 floats in data/0 under shape and strides.
std::string tensor(const std::string& shape, const std::string& strides, uint32_t offset,
                   uint32_t elements = 648) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\nFloatStorage\n" +
         text("0") + text("cpu") + "J" + number(elements) + "tQJ" + number(offset) + shape +
         strides + "\x89" + "ccollections\nOrderedDict\n)RtR";
}
std::string tuple(const std::vector<uint32_t>& values) {
  std::string out = "(";
  for (const uint32_t value : values) out += "J" + number(value);
  return out + "t";
}
std::string dictionary(const std::string& name, const std::string& value) {
  return "}" + text(name) + value + "s";
}
const std::vector<uint32_t> kShape = {4, 6, 3, 3, 3}, kStrides = {162, 27, 9, 3, 1};

TEST(CheckpointPickle, ASoundOneMadeByHandLoads) {
  const Outcome outcome =
      load_pickle(dictionary("up.weight", tensor(tuple(kShape), tuple(kStrides), 0)));
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  EXPECT_EQ(outcome.weight(), weight_values(648));
  EXPECT_STREQ(outcome.model.weight_name, "up.weight");
}

TEST(CheckpointPickle, TensorsThatReachOutsideTheirStorageAreRefused) {
  const auto refused = [](const std::string& shape, const std::string& strides, uint32_t offset,
                          uint32_t elements, const char* word) {
    const Outcome outcome =
        load_pickle(dictionary("up.weight", tensor(shape, strides, offset, elements)));
    EXPECT_EQ(outcome.status, VOLUP_STATUS_UNREADABLE);
    EXPECT_TRUE(says(outcome.text, word)) << outcome.text;
  };
  const std::string shape = tuple(kShape), strides = tuple(kStrides);
  refused(shape, strides, 1, 648, "reach outside");
  refused(shape, tuple({162, 27, 9, 3, 2}), 0, 648, "reach outside");
  refused(shape, strides, 0, 649, "bytes for 649 elements");
  refused(shape, strides, 0, 0x7fffffff, "bytes for 2147483647 elements");
  refused(shape, strides, 0, 0xffffffff, "a description of another form");  // -1
  refused(shape, strides, 0xffffffff, 648, "a description of another form");
  refused(tuple({4, 6, 3, 3, 0xffffffff}), strides, 0, 648, "a description of another form");
  refused(tuple({4, 6, 3, 3}), strides, 0, 648, "a description of another form");
  refused(tuple({0x7fffffff, 0x7fffffff, 0x7fffffff, 3, 3}), strides, 0, 648, "reach outside");
  refused(shape, tuple({0x7fffffff, 0x7fffffff, 9, 3, 1}), 0, 648, "reach outside");
  refused(shape, "N", 0, 648, "a description of another form");
}

TEST(CheckpointPickle, FormsThatBringReadersDownAreRefused) {
  const std::string good = tensor(tuple(kShape), tuple(kStrides), 0);
  const auto refused = [](const std::string& pickle, const char* word) {
    const Outcome outcome = load_pickle(pickle);
    EXPECT_FALSE(outcome.ok());
    EXPECT_TRUE(says(outcome.text, word)) << outcome.text;
  };
  refused("}q" + std::string(1, '\0') + text("a") + "h" + std::string(1, '\0') + "s",
          "a value holds itself");
  std::string deep;
  for (int i = 0; i < 600; ++i) deep += "]";
  for (int i = 0; i < 599; ++i) deep += "a";
  refused(deep, "nests values too deeply");
  refused("(" + std::string(3'000'000, 'N') + "t", "more than 2097152 values");
  refused("", "it leaves 0 values");
  refused("NN", "it leaves 2 values");
  refused("(", "it leaves a list open");
  refused("t", "closes a list that is not open");
  refused("h\x05", "recalls a value that it never kept");
  refused("Nq\x05", "out of order");
  refused("NNR", "calls something that is not a name");
  refused("]" + text("a") + "Ns", "sets a key of something else");
  refused("}Na", "appends to something else");
  refused("}(Nu", "a key without a value");
  refused("NNb", "fills something else");
  refused("Pabc\n", "the code 80");  // PERSID
  refused("cos\nsystem\n(" + text("true") + "tR", "'os.system'");
  refused("i__builtin__\neval\n", "the code 105");  // INST
  refused("}" + text("w.weight") + good + "s" + text("w.weight") + good + "s",
          "the key 'w.weight' is there twice");
  // A memo makes 2^40 references of a few bytes.
  std::string bomb = "(]q" + std::string(1, '\0');
  for (int i = 1; i <= 40; ++i) {
    const std::string before(1, static_cast<char>(i - 1));
    bomb += "](h" + before + "h" + before + "eq" + std::string(1, static_cast<char>(i));
  }
  refused(bomb + "t", "more than 2^22 values");
}

// ---- safetensors -------------------------------------------------------------------------------

std::string safetensors(const std::string& header, size_t data) {
  std::string bytes;
  append<uint64_t>(&bytes, header.size());
  return bytes + header + std::string(data, '\0');
}

TEST(Safetensors, HeadersThatLieAreRefused) {
  const std::string weight = R"("up.weight":{"dtype":"F32","shape":[4,6,3,3,3],"data_offsets":)";
  const auto refused = [](const std::string& header, size_t data, const char* word) {
    const Outcome outcome = load_b(safetensors(header, data));
    EXPECT_FALSE(outcome.ok()) << header.substr(0, 200);
    EXPECT_TRUE(says(outcome.text, word)) << header.substr(0, 200) << "\n" << outcome.text;
  };
  ASSERT_TRUE(load_b(safetensors("{" + weight + "[0,2592]}}   ", 2592)).ok());
  refused("{" + weight + "[0,2592]}}", 2591, "truncated");
  refused("{" + weight + "[0,2592]}}", 2593, "more behind");
  refused("{" + weight + "[1,2593]}}", 2593, "a hole before 'up.weight'");
  refused("{" + weight + "[0,2588]}}", 2592, "got 2588 bytes for 'up.weight'");
  refused("{" + weight + "[2592,0]}}", 2592, "[begin, end]");
  refused("{" + weight + "[0,2592,3]}}", 2592, "[begin, end]");
  refused("{" + weight + R"([0,2592]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2588,2592]}})",
          2592, "an overlap before 'b'");
  refused("{" + weight + "[0,2592]}," + weight + "[0,2592]}}", 2592, "twice");
  refused(R"({"a":{"dtype":"F32","dtype":"F32"}})", 0, "twice");
  refused(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "no dtype, shape or data_offsets");
  refused(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "a negative number");
  refused(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "a fraction");
  refused(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
          "beyond 63 bits");
  refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,4]}})", 4,
          "need those of F32");
  refused(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})", 4, "dtype: got 'F4'");
  refused(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "a list where none");
  refused(R"({"a":{"dtype":"F32","shape":{},"data_offsets":[0,4]}})", 4, "an object where none");
  refused(R"({"a":{"x":1}})", 4, "the key 'x'");
  refused(R"({"a":7})", 4, "a number where none");
  refused("{", 4, "no JSON");
  refused("[]", 4, "does not begin with '{'");
  refused("{}", 0, "no tensors");
  refused("{" + std::string(100'000, '['), 4, "no JSON");
  std::string deep = R"({"a":)";
  for (int i = 0; i < 100'000; ++i) deep += R"({"a":)";
  refused(deep, 4, "the key 'a' in 'a'");
  std::string huge;
  append<uint64_t>(&huge, uint64_t{1} << 62);
  EXPECT_TRUE(says(load_b(huge + "{}").text, "need at most"));
}

// ---- Inputs of the fuzzer ----------------------------------------------------------------------

TEST(CheckpointFuzz, ItsCorpusGivesModelsOrWords) {
  int count = 0;
  for (const auto& file : fs::directory_iterator(VOLUP_TEST_FUZZ_DIR "/checkpoint")) {
    SCOPED_TRACE(file.path().string());
    ++count;
    const std::string bytes = read_file(file.path());
    std::vector<Entry> entries = entries_of(bytes_of("B_plain.pt"));
    for (Entry& entry : entries) {
      if (says(entry.name, "data.pkl")) entry.content = bytes;
    }
    for (const std::string& input : {bytes, zip_of(entries)}) {
      for (const char* how : {kB, "", "A stride=2 submodule=decoder.up1 ignore_crc"}) {
        const Options options(how);
        const Outcome outcome = checkpoint().load(input, options.whole);
        EXPECT_TRUE(outcome.ok() || !outcome.text.empty());
      }
    }
  }
  EXPECT_GE(count, 7);
}

// ---- Manners -----------------------------------------------------------------------------------

TEST(CheckpointModule, StandsOnNoLibtorchAndCannotWrite) {
  EXPECT_FALSE(says(checkpoint().abi().library, "torch"));
  EXPECT_EQ(checkpoint().abi().save, nullptr);
}

TEST(CheckpointModule, OtherArchivesAreNamed) {
  Entry entry;
  entry.name = "a/code/x.py";
  EXPECT_TRUE(says(load_b(zip_of({entry})).text, "a TorchScript archive"));
  entry.name = "a/b";
  EXPECT_TRUE(says(load_b(zip_of({entry})).text, "without data.pkl"));
  entry.name = "b";
  EXPECT_TRUE(says(load_b(zip_of({entry})).text, "files at its top"));
  EXPECT_TRUE(says(load_b(zip_of({})).text, "an empty zip archive"));
}

}  // namespace
}  // namespace volup::test
