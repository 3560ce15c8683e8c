// SPDX-License-Identifier: Apache-2.0
//
// The HDF5 module, a folder for each test, and a model with every field set; shared by its tests.
// They and the module share one libhdf5, which takes one thread at a time: only the threads test
// calls the module from several, and calls HDF5 from none.
#ifndef VOLUP_TESTS_LOAD_HDF5_UNDER_TEST_H_
#define VOLUP_TESTS_LOAD_HDF5_UNDER_TEST_H_

#include <gtest/gtest.h>
#include <hdf5.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "module_under_test.h"
#include "temporary_folder.h"

namespace volup::test {

namespace fs = std::filesystem;

inline const ModuleUnderTest& hdf5() {
  static const ModuleUnderTest* const module = new ModuleUnderTest("libvolup_hdf5.so");
  return *module;
}

// A folder of its own for each test.
class Hdf5Module : public testing::Test {
 protected:
  Hdf5Module() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

  fs::path path(const std::string& name) const { return folder_ / name; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& file : fs::directory_iterator(folder_.path()))
      names.push_back(file.path().filename());
    return names;
  }

  const TemporaryFolder folder_;
};

// A model with every field set, in memory of its own.
struct Sample {
  explicit Sample(volup_epilogue_kind kind, bool with_bias = true) {
    volup_geometry& g = model.geometry;
    g = {sizeof(g), 4, 6, 2, {1, 2, 3}, {3, 1, 2}, {0, 1, 1}, {0, 0, 1}, {2, 0, 1}, {1, 2, 1}};
    weight.resize(4 * 3 * 6);
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    for (float& value : weight) value = normal(random);
    weight[0] = -0.0f;
    weight[1] = std::numeric_limits<float>::denorm_min();
    weight[2] = std::numeric_limits<float>::max();
    bias = {1, -2, 3.5f, 1e-30f, 0, 7};
    model.epilogue = {sizeof(model.epilogue), kind, 2.5f, 5.0f, 0.125f, -1.5f, 1.25f};
    model.weight = weight.data();
    model.weight_count = static_cast<int64_t>(weight.size());
    if (with_bias) {
      model.bias = bias.data();
      model.bias_count = 6;
    }
    model.origin_kind = kind_text.data();
    model.origin_producer = producer_text.data();
    model.origin_sha256 = sha_text.data();
    model.unused = unused_text.data();
    model.notes = notes_text.data();
  }
  Sample(const Sample&) = delete;
  Sample& operator=(const Sample&) = delete;

  volup_module_model model{};
  std::vector<float> weight, bias;
  std::string kind_text = "torchscript", producer_text = "PyTorch 2.11.0 \xc3\xa9";
  std::string sha_text = std::string(64, 'a');
  std::string unused_text = "bias\nhead.weight", notes_text = "a note";
};

inline std::vector<uint32_t> bits(const std::vector<float>& values) {
  std::vector<uint32_t> out;
  for (const float value : values) out.push_back(std::bit_cast<uint32_t>(value));
  return out;
}

}  // namespace volup::test

#endif  // VOLUP_TESTS_LOAD_HDF5_UNDER_TEST_H_
