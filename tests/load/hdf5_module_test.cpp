// SPDX-License-Identifier: Apache-2.0
//
// The HDF5 module: files it wrote itself, damaged ones, and other kinds.
#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <random>
#include <thread>

#include "hdf5_under_test.h"

namespace volup::test {
namespace {

// ---- Files the module wrote --------------------------------------------------------------------

TEST_F(Hdf5Module, WhatIsSavedIsLoadedBitForBit) {
  for (int kind = 0; kind < 4; ++kind) {
    for (const bool with_bias : {true, false}) {
      SCOPED_TRACE(testing::Message() << "kind " << kind << " bias " << with_bias);
      const Sample sample(static_cast<volup_epilogue_kind>(kind), with_bias);
      ASSERT_EQ(hdf5().save(sample.model, path("m.h5")), "");
      const Outcome outcome = hdf5().load(read_file(path("m.h5")));
      ASSERT_TRUE(outcome.ok()) << outcome.text;
      EXPECT_EQ(
          std::memcmp(&outcome.model.geometry, &sample.model.geometry, sizeof(volup_geometry)), 0);
      EXPECT_EQ(bits(outcome.weight()), bits(sample.weight));
      EXPECT_EQ(bits(outcome.bias()), with_bias ? bits(sample.bias) : std::vector<uint32_t>());
      EXPECT_EQ(outcome.model.bias != nullptr, with_bias);
      const volup_epilogue& got = outcome.model.epilogue;
      const volup_epilogue& put = sample.model.epilogue;
      EXPECT_EQ(got.kind, kind);
      const bool a = kind == VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP;
      const bool c = kind == VOLUP_EPILOGUE_ADD_HARDSWISH;
      if (a || c) {
        EXPECT_EQ(got.shift, put.shift);
        EXPECT_EQ(got.divisor, put.divisor);
        EXPECT_EQ(got.clamp_min, put.clamp_min);
        EXPECT_EQ(got.clamp_max, put.clamp_max);
      }
      EXPECT_EQ(got.subtract, a ? put.subtract : 0.0f);
      EXPECT_STREQ(outcome.model.kind, "volup-hdf5");
      EXPECT_STREQ(outcome.model.producer, "volup 1.0.0");
      EXPECT_STREQ(outcome.model.weight_dtype, "float32");
      EXPECT_EQ(outcome.model.origin_kind, sample.kind_text);
      EXPECT_EQ(outcome.model.origin_producer, sample.producer_text);
      EXPECT_EQ(outcome.model.origin_sha256, sample.sha_text);
      EXPECT_EQ(outcome.unused(), sample.unused_text);
      EXPECT_EQ(outcome.notes(), sample.notes_text);
    }
  }
}

TEST_F(Hdf5Module, TheSameModelGivesTheSameBytes) {
  const Sample sample(VOLUP_EPILOGUE_ADD_HARDSWISH);
  ASSERT_EQ(hdf5().save(sample.model, path("a.h5")), "");
  sleep(1);  // a time stamp would show
  ASSERT_EQ(hdf5().save(sample.model, path("b.h5")), "");
  const std::string first = read_file(path("a.h5"));
  EXPECT_EQ(first, read_file(path("b.h5")));
  const Outcome outcome = hdf5().load(first);
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  ASSERT_EQ(hdf5().save(outcome.model, path("c.h5")), "");
  EXPECT_EQ(first, read_file(path("c.h5")));
}

TEST_F(Hdf5Module, SavingReplacesWholeFilesOrNothing) {
  const Sample sample(VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
  ASSERT_EQ(hdf5().save(sample.model, path("m.h5")), "");
  ASSERT_EQ(hdf5().save(sample.model, path("m.h5")), "");
  EXPECT_EQ(files(), std::vector<std::string>({"m.h5"}));

  const std::string missing = hdf5().save(sample.model, path("no/such/folder.h5"));
  EXPECT_EQ(missing.substr(0, 3), "10 ");
  EXPECT_NE(missing.find("cannot create"), std::string::npos) << missing;
  fs::create_directory(path("folder"));
  const std::string folder = hdf5().save(sample.model, path("folder"));
  EXPECT_NE(folder.find("cannot replace"), std::string::npos) << folder;
  EXPECT_EQ(files().size(), 2u) << "a temporary file was left";
}

// Whether they may be so is the library's to say.
TEST_F(Hdf5Module, NonFiniteWeightsAreLoadedAsTheyAre) {
  Sample sample(VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
  sample.weight[5] = std::numeric_limits<float>::quiet_NaN();
  sample.weight[6] = -std::numeric_limits<float>::infinity();
  ASSERT_EQ(hdf5().save(sample.model, path("m.h5")), "");
  const Outcome outcome = hdf5().load(read_file(path("m.h5")));
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  EXPECT_EQ(bits(outcome.weight()), bits(sample.weight));
  EXPECT_EQ(outcome.notes(), "a note");
}

// Chunks are 1 MiB at most: here [3, 5, 8, 64, 64] for the smaller weight, whose first axes do not
// divide evenly, and parts of the last two axes for the larger.
TEST_F(Hdf5Module, AWeightOfSeveralChunksIsLoadedBitForBit) {
  const struct {
    int64_t in, out, kernel[3];
  } kShapes[] = {{7, 11, {8, 64, 64}}, {2, 1, {2, 700, 900}}};
  for (const auto& shape : kShapes) {
    Sample sample(VOLUP_EPILOGUE_SOFTMAX_SIGMOID, false);
    volup_geometry& g = sample.model.geometry;
    g.in_channels = shape.in, g.out_channels = shape.out, g.groups = 1;
    for (int i = 0; i < 3; ++i) {
      g.kernel[i] = shape.kernel[i];
      g.stride[i] = g.dilation[i] = 1;
      g.output_padding[i] = 0;
    }
    sample.weight.resize(static_cast<size_t>(shape.in * shape.out * shape.kernel[0] *
                                             shape.kernel[1] * shape.kernel[2]));
    std::mt19937 random(12);
    for (float& value : sample.weight) value = static_cast<float>(random());
    sample.model.weight = sample.weight.data();
    sample.model.weight_count = static_cast<int64_t>(sample.weight.size());
    ASSERT_EQ(hdf5().save(sample.model, path("m.h5")), "");
    std::string bytes = read_file(path("m.h5"));
    // Even chunks: little is stored beside the weights.
    EXPECT_LT(bytes.size(), sample.weight.size() * sizeof(float) * 5 / 4);
    const Outcome outcome = hdf5().load(bytes);
    ASSERT_TRUE(outcome.ok()) << outcome.text;
    EXPECT_TRUE(bits(outcome.weight()) == bits(sample.weight));

    const std::string last(reinterpret_cast<const char*>(&sample.weight.back()), sizeof(float));
    const size_t at = bytes.rfind(last);
    ASSERT_NE(at, std::string::npos);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    const Outcome damaged = hdf5().load(bytes);
    EXPECT_EQ(damaged.status, VOLUP_STATUS_UNREADABLE);
    EXPECT_NE(damaged.text.find("checksum"), std::string::npos) << damaged.text;
  }
}

TEST_F(Hdf5Module, LoadsAndSavesFromSeveralThreads) {
  const Sample sample(VOLUP_EPILOGUE_ADD_HARDSWISH);
  ASSERT_EQ(hdf5().save(sample.model, path("m.h5")), "");
  const std::string good = read_file(path("m.h5")), bad = good.substr(0, good.size() / 2);
  std::vector<int> wrong(8, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      const fs::path mine = path("t" + std::to_string(t) + ".h5");
      for (int i = 0; i < 25; ++i) {
        wrong[t] += hdf5().load(bad).ok();
        const Outcome outcome = hdf5().load(good);
        wrong[t] += !outcome.ok() || bits(outcome.weight()) != bits(sample.weight);
        wrong[t] += hdf5().save(sample.model, mine) != "" || read_file(mine) != good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(wrong.size(), 0));
}

// ---- Damage and other kinds --------------------------------------------------------------------

TEST_F(Hdf5Module, OtherKindsAreNamed) {
  const auto text_of = [](const std::string& bytes) {
    const Outcome outcome = hdf5().load(bytes);
    EXPECT_EQ(outcome.status, VOLUP_STATUS_UNREADABLE);
    return outcome.text;
  };
  EXPECT_NE(text_of("").find("empty"), std::string::npos);
  EXPECT_NE(text_of("not a model\n").find("no HDF5 signature"), std::string::npos);
  const std::string io = text_of(read_file(fs::path(VOLUP_TEST_CASES_DIR) / "lse_seed/io.h5"));
  EXPECT_NE(io.find("not volup's, Keras' or a state_dict's (it holds x, y)"), std::string::npos)
      << io;
}

TEST_F(Hdf5Module, TruncatedFilesAreRefused) {
  const Sample sample(VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP);
  ASSERT_EQ(hdf5().save(sample.model, path("m.h5")), "");
  const std::string good = read_file(path("m.h5"));
  for (size_t size = 0; size < good.size(); size += 1 + size / 64) {
    const Outcome outcome = hdf5().load(good.substr(0, size));
    ASSERT_EQ(outcome.status, VOLUP_STATUS_UNREADABLE) << "first " << size << " bytes";
    ASSERT_FALSE(outcome.text.empty());
  }
}

// Everything in a file of ours that is read has a checksum.
TEST_F(Hdf5Module, ChangedBytesGiveTheSameModelOrWords) {
  const Sample sample(VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP);
  ASSERT_EQ(hdf5().save(sample.model, path("m.h5")), "");
  const std::string good = read_file(path("m.h5"));
  const Outcome whole = hdf5().load(good);
  ASSERT_TRUE(whole.ok()) << whole.text;
  constexpr uint64_t kSeed = 4711;
  std::mt19937_64 random(kSeed);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    std::string bad = good;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) bad[random() % bad.size()] = static_cast<char>(random());
    const Outcome outcome = hdf5().load(bad);
    if (!outcome.ok()) {
      ASSERT_FALSE(outcome.text.empty());
      ++refused;
      continue;
    }
    ASSERT_EQ(bits(outcome.weight()), bits(whole.weight()));
    ASSERT_EQ(bits(outcome.bias()), bits(whole.bias()));
    ASSERT_EQ(std::memcmp(&outcome.model.geometry, &whole.model.geometry, sizeof(volup_geometry)),
              0);
    ASSERT_EQ(std::memcmp(&outcome.model.epilogue, &whole.model.epilogue, sizeof(volup_epilogue)),
              0);
  }
  EXPECT_GT(refused, 100);
}

TEST_F(Hdf5Module, AChangedWeightFailsItsChecksum) {
  const Sample sample(VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
  ASSERT_EQ(hdf5().save(sample.model, path("m.h5")), "");
  std::string bad = read_file(path("m.h5"));
  const std::string stored(reinterpret_cast<const char*>(sample.weight.data()),
                           sample.weight.size() * sizeof(float));
  const size_t at = bad.find(stored);
  ASSERT_NE(at, std::string::npos);
  bad[at + 41] = static_cast<char>(bad[at + 41] ^ 4);
  const Outcome outcome = hdf5().load(bad);
  EXPECT_EQ(outcome.status, VOLUP_STATUS_UNREADABLE);
  EXPECT_NE(outcome.text.find("checksum"), std::string::npos) << outcome.text;
}

TEST_F(Hdf5Module, PrintsNothingAndLeavesHdf5AsItWas) {
  const auto printer = [](hid_t, void*) -> herr_t { return 0; };
  H5Eset_auto2(H5E_DEFAULT, printer, nullptr);
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  hdf5().load(std::string("\x89HDF\r\n\x1a\n", 8) + std::string(200, 'x'));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  H5E_auto2_t function = nullptr;
  void* data = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &function, &data);
  EXPECT_EQ(function, static_cast<H5E_auto2_t>(printer));
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  EXPECT_NE(std::string(hdf5().abi().library).find("HDF5 1."), std::string::npos);
}

}  // namespace
}  // namespace volup::test
