// SPDX-License-Identifier: Apache-2.0
//
// What a pickle of a TorchScript archive names and claims, before libtorch reads it: globals and
// tensor storages.
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

}  // namespace volup::torchscript

#endif  // VOLUP_LOAD_TORCHSCRIPT_PICKLE_SCAN_H_
