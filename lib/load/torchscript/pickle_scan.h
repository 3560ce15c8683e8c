// SPDX-License-Identifier: Apache-2.0
//
// Walks a pickle without building anything: which globals it names and which tensor storages it
// claims, with the stack and memo discipline that libtorch's own unpickler takes for granted. It
// calls nothing and has no libtorch.
#ifndef VOLUP_LOAD_TORCHSCRIPT_PICKLE_SCAN_H_
#define VOLUP_LOAD_TORCHSCRIPT_PICKLE_SCAN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace volup::torchscript {

struct PickleStorage {
  std::string type;  // "FloatStorage"
  std::string key;   // name of the entry in the archive's tensor folder
  int64_t elements = 0;
};

struct PickleScan {
  std::vector<std::string> globals;  // "torch._utils _rebuild_tensor_v2", each once, in order
  std::vector<PickleStorage> storages;
  std::string fault;  // empty: the pickle is sound and TorchScript's writer could have made it
};

PickleScan scan_pickle(std::string_view bytes);

// Bytes of an element of a storage type by its name; 0 if it is not a plain tensor type.
int64_t storage_element_size(std::string_view type);

}  // namespace volup::torchscript

#endif  // VOLUP_LOAD_TORCHSCRIPT_PICKLE_SCAN_H_
