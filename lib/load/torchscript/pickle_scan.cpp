// SPDX-License-Identifier: Apache-2.0
//
// See pickle_scan.h.
#include "load/torchscript/pickle_scan.h"

#include <set>

#include "load/archive/pickle_reader.h"

namespace volup::torchscript {

PickleScan scan_pickle(std::string_view bytes) {
  const archive::Pickle pickle = archive::read_pickle(bytes, archive::PickleWriter::kTorchScript);
  PickleScan scan;
  scan.fault = pickle.fault;
  std::set<std::string> seen;
  for (const archive::PickleValue& value : pickle.values) {
    if (value.kind == archive::PickleValue::kStorage) {
      scan.storages.push_back({std::string(value.text), std::string(value.second), value.integer});
    } else if (value.kind == archive::PickleValue::kGlobal) {
      std::string name = std::string(value.second) + " " + std::string(value.text);
      if (seen.insert(name).second) scan.globals.push_back(std::move(name));
    }
  }
  return scan;
}

}  // namespace volup::torchscript
