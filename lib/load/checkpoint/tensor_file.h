// SPDX-License-Identifier: Apache-2.0
//
// What a file of weights alone holds, whatever its format: named tensors, each known to lie within
// the bytes of its storage. Their values are read only when one of them is taken.
#ifndef VOLUP_LOAD_CHECKPOINT_TENSOR_FILE_H_
#define VOLUP_LOAD_CHECKPOINT_TENSOR_FILE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace volup::checkpoint {

struct StoredTensor {
  std::string name;   // "conv.weight"; parts of nested dictionaries joined by dots
  std::string dtype;  // "float32", "int64"
  int64_t element_size = 0;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;         // in elements
  int64_t offset = 0;                   // in elements, from the storage's start
  std::string_view storage;             // its bytes in the file
  std::function<std::string()> unpack;  // where the storage is deflated: gives its bytes instead
  std::string special;  // what else than a plain dense tensor it is; the rest is then not set
};

struct TensorFile {
  std::string kind;      // "state_dict", "safetensors"
  std::string producer;  // "PyTorch (torch.save, file version 3)"
  std::vector<StoredTensor> tensors;
  std::vector<std::string> notes;
};

// a * b * ..., or a negative number where it passes 63 bits. Sizes are not negative.
inline int64_t product(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) {
    if (size == 0) return 0;
  }
  for (const int64_t size : sizes) {
    if (__builtin_mul_overflow(count, size, &count)) return -1;
  }
  return count;
}

}  // namespace volup::checkpoint

#endif  // VOLUP_LOAD_CHECKPOINT_TENSOR_FILE_H_
