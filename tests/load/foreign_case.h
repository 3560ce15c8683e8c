// SPDX-License-Identifier: Apache-2.0
//
// Files that other programs wrote, through the library: the weights that it loads and the outputs
// that its CPU path gives, held against NAME.io.h5, which the script that wrote the file wrote too.
#ifndef VOLUP_TESTS_LOAD_FOREIGN_CASE_H_
#define VOLUP_TESTS_LOAD_FOREIGN_CASE_H_

#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "volup/volup.h"

namespace volup::test {

struct Array {
  std::vector<int64_t> shape;
  std::vector<double> values;
  bool empty() const { return shape.empty(); }
  std::vector<float> floats() const { return {values.begin(), values.end()}; }
};

// What a user says of a file of weights alone, as the tool's flags have it.
struct SpokenOptions {
  explicit SpokenOptions(const std::string& flags = "") {
    options.struct_size = sizeof(options);
    options.module_directory = VOLUP_TEST_MODULE_DIR;
    epilogue.struct_size = sizeof(epilogue);
    geometry.struct_size = sizeof(geometry);
    geometry.groups = 1;
    for (int i = 0; i < 3; ++i) geometry.stride[i] = geometry.dilation[i] = 1;
    std::istringstream words(flags);
    for (std::string flag, value; words >> flag >> value;) take(flag, value);
  }
  SpokenOptions(const SpokenOptions&) = delete;
  SpokenOptions& operator=(const SpokenOptions&) = delete;

  volup_load_options options{};
  volup_epilogue epilogue{};
  volup_geometry geometry{};
  std::string submodule;

 private:
  static void fill(int64_t (&axes)[3], const std::string& value) {
    std::istringstream in(value);
    for (int i = 0; i < 3; ++i) {
      char x = 0;
      if (!(in >> axes[i])) axes[i] = axes[i - 1];
      in >> x;
    }
  }
  void take(const std::string& flag, const std::string& value) {
    static const std::map<std::string, volup_epilogue_kind> kinds = {
        {"identity", VOLUP_EPILOGUE_IDENTITY},
        {"logsumexp_swish_clamp", VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP},
        {"softmax_sigmoid", VOLUP_EPILOGUE_SOFTMAX_SIGMOID},
        {"add_hardswish", VOLUP_EPILOGUE_ADD_HARDSWISH}};
    if (flag == "--type") {
      volup_epilogue_init(kinds.at(value), &epilogue);
      options.epilogue = &epilogue;
      return;
    }
    if (flag == "--submodule") {
      submodule = value;
      options.submodule = submodule.c_str();
      return;
    }
    options.geometry = &geometry;
    if (flag == "--stride") fill(geometry.stride, value);
    if (flag == "--dilation") fill(geometry.dilation, value);
    if (flag == "--output-padding") fill(geometry.output_padding, value);
    if (flag == "--groups") geometry.groups = std::stoll(value);
    if (flag == "--padding") {
      const size_t colon = value.find(':');
      fill(geometry.padding_begin, value.substr(0, colon));
      fill(geometry.padding_end, colon == std::string::npos ? value : value.substr(colon + 1));
    }
  }
};

class Io {
 public:
  explicit Io(const std::filesystem::path& path)
      : file_(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)) {
    EXPECT_GE(file_, 0) << path;
  }
  ~Io() { H5Fclose(file_); }
  Io(const Io&) = delete;
  Io& operator=(const Io&) = delete;

  Array array(const char* name) const {
    Array array;
    if (H5Lexists(file_, name, H5P_DEFAULT) <= 0) return array;
    const hid_t dataset = H5Dopen2(file_, name, H5P_DEFAULT), space = H5Dget_space(dataset);
    std::vector<hsize_t> shape(static_cast<size_t>(H5Sget_simple_extent_ndims(space)));
    H5Sget_simple_extent_dims(space, shape.data(), nullptr);
    array.shape.assign(shape.begin(), shape.end());
    array.values.resize(static_cast<size_t>(H5Sget_simple_extent_npoints(space)));
    EXPECT_GE(
        H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, array.values.data()), 0);
    H5Sclose(space);
    H5Dclose(dataset);
    return array;
  }
  double number(const char* name, double otherwise) const {
    if (H5Aexists(file_, name) <= 0) return otherwise;
    const hid_t attribute = H5Aopen(file_, name, H5P_DEFAULT);
    double value = 0;
    EXPECT_GE(H5Aread(attribute, H5T_NATIVE_DOUBLE, &value), 0);
    H5Aclose(attribute);
    return value;
  }
  // Written by h5py: of variable length.
  std::string text(const char* name) const {
    if (H5Aexists(file_, name) <= 0) return "";
    const hid_t attribute = H5Aopen(file_, name, H5P_DEFAULT), type = H5Aget_type(attribute);
    char* pointer = nullptr;
    EXPECT_GE(H5Aread(attribute, type, &pointer), 0);
    const std::string text = pointer ? pointer : "";
    H5free_memory(pointer);
    H5Tclose(type);
    H5Aclose(attribute);
    return text;
  }

 private:
  hid_t file_;
};

inline volup_tensor tensor_of(void* data, const std::vector<int64_t>& shape) {
  volup_tensor tensor{};
  tensor.struct_size = sizeof(tensor);
  tensor.data = data;
  tensor.device_type = VOLUP_DEVICE_CPU;
  tensor.rank = 5;
  std::copy(shape.begin(), shape.end(), tensor.shape);
  return tensor;
}

// Runs the model on x (and add) on the CPU and compares with y, in float64.
inline void expect_outputs(const volup_model* model, const Io& io) {
  const Array x = io.array("x"), add = io.array("add"), y = io.array("y");
  ASSERT_FALSE(y.empty());
  int64_t shape[5];
  ASSERT_EQ(volup_model_output_shape(model, x.shape.data(), shape), VOLUP_STATUS_OK)
      << volup_last_error();
  ASSERT_EQ(std::vector<int64_t>(shape, shape + 5), y.shape);
  volup_session_options options{};
  options.struct_size = sizeof(options);
  options.device_type = VOLUP_DEVICE_CPU;
  volup_session* session = nullptr;
  ASSERT_EQ(volup_session_create(model, &options, &session), VOLUP_STATUS_OK) << volup_last_error();
  std::vector<float> in = x.floats(), added = add.floats();
  std::vector<float> out(y.values.size(), std::numeric_limits<float>::quiet_NaN());
  const volup_tensor in_tensor = tensor_of(in.data(), x.shape);
  const volup_tensor out_tensor = tensor_of(out.data(), y.shape);
  const volup_tensor add_tensor = tensor_of(added.data(), y.shape);
  const volup_status status =
      volup_session_run(session, &in_tensor, add.empty() ? nullptr : &add_tensor, &out_tensor);
  EXPECT_EQ(status, VOLUP_STATUS_OK) << volup_last_error();
  volup_session_destroy(session);
  double worst = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double error = std::abs(out[i] - y.values[i]) / (1 + std::abs(y.values[i]));
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  EXPECT_LT(worst, 2e-5);
}

// Weights value by value, then outputs.
inline void expect_model(const volup_model* model, const Io& io) {
  const float *weight = nullptr, *bias = nullptr;
  ASSERT_EQ(volup_model_weights(model, &weight, &bias), VOLUP_STATUS_OK);
  const Array need = io.array("weight"), need_bias = io.array("bias");
  ASSERT_FALSE(need.empty());
  volup_geometry g{};
  g.struct_size = sizeof(g);
  ASSERT_EQ(volup_model_geometry(model, &g), VOLUP_STATUS_OK);
  ASSERT_EQ((std::vector<int64_t>{g.in_channels, g.out_channels / g.groups, g.kernel[0],
                                  g.kernel[1], g.kernel[2]}),
            need.shape);
  EXPECT_EQ(std::vector<float>(weight, weight + need.values.size()), need.floats());
  ASSERT_EQ(bias != nullptr, !need_bias.empty());
  if (bias) {
    EXPECT_EQ(std::vector<float>(bias, bias + need_bias.values.size()), need_bias.floats());
  }
  expect_outputs(model, io);
}

// The model after a round through volup's own format, which keeps where it came from.
inline void expect_converted(const volup_model* model, const Io& io,
                             const volup_load_options& options, const std::string& kind) {
  std::string name = std::filesystem::temp_directory_path() / "volup-converted-XXXXXX";
  const int descriptor = mkstemp(name.data());
  ASSERT_GE(descriptor, 0);
  close(descriptor);
  volup_load_options plain{};
  plain.struct_size = sizeof(plain);
  plain.module_directory = options.module_directory;
  volup_model* again = nullptr;
  const bool is_loaded = volup_model_save(model, name.c_str(), &plain) == VOLUP_STATUS_OK &&
                         volup_model_load(name.c_str(), &plain, &again) == VOLUP_STATUS_OK;
  std::filesystem::remove(name);
  ASSERT_TRUE(is_loaded) << volup_last_error();
  expect_model(again, io);
  const char* json = nullptr;
  EXPECT_EQ(volup_model_describe(again, &json), VOLUP_STATUS_OK);
  EXPECT_NE(std::string(json).find("\"kind\":\"" + kind + "\""), std::string::npos) << json;
  volup_model_destroy(again);
}

// `volup check` with the flags that a user would give, where the tool is built.
inline void expect_checked(const std::filesystem::path& file, const std::filesystem::path& io,
                           const std::string& flags) {
  const std::string tool = VOLUP_TEST_TOOL;
  // The tool knows the three blocks alone.
  if (tool.empty() || flags.find("identity") != std::string::npos) return;
  const std::string command = "'" + tool + "' check '" + file.string() + "' '" + io.string() +
                              "' --device cpu --quiet " + flags + " > /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

// Files of a folder whose name ends so, sorted, without that ending.
inline std::vector<std::string> names_in(const std::filesystem::path& folder,
                                         const std::string& ending) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::string name = file.path().filename();
    if (name.ends_with(ending)) names.push_back(name.substr(0, name.size() - ending.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace volup::test

#endif  // VOLUP_TESTS_LOAD_FOREIGN_CASE_H_
