// SPDX-License-Identifier: Apache-2.0
//
// HDF5 tensors for the tests, written and read by the test itself and not by the tool's own code.
#ifndef VOLUP_TESTS_TOOL_TENSOR_FILE_H_
#define VOLUP_TESTS_TOOL_TENSOR_FILE_H_

#include <filesystem>
#include <string>
#include <vector>

namespace volup::test {

struct TensorData {
  std::vector<unsigned long long> shape;
  std::vector<double> values;
};

enum class Stored { kFloat32, kFloat64, kInt16, kString };

// Adds a dataset to the file, which is made if it does not exist.
void put_tensor(const std::filesystem::path& file, const std::string& dataset,
                const TensorData& tensor, Stored stored = Stored::kFloat32);
TensorData get_tensor(const std::filesystem::path& file, const std::string& dataset);
bool is_float32(const std::filesystem::path& file, const std::string& dataset);
std::vector<std::string> dataset_names(const std::filesystem::path& file);

void put_attribute(const std::filesystem::path& file, const std::string& name,
                   const std::vector<double>& values);
// The string or number of an attribute of the file; "" or 0 if it has none.
std::string get_text(const std::filesystem::path& file, const std::string& name);
double get_number(const std::filesystem::path& file, const std::string& name);

}  // namespace volup::test

#endif  // VOLUP_TESTS_TOOL_TENSOR_FILE_H_
