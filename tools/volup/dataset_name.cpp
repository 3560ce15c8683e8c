// SPDX-License-Identifier: Apache-2.0
//
// See dataset_name.h.
#include "dataset_name.h"

#include <filesystem>
#include <system_error>

namespace volup::tool {

DatasetName split_dataset_name(const std::string& text, std::string_view default_dataset) {
  std::error_code ignored;
  const auto exists = [&ignored](const std::string& path) {
    return std::filesystem::exists(path, ignored);
  };
  const std::size_t colon = text.rfind(':');
  const DatasetName whole{text, std::string(default_dataset)};
  if (colon == std::string::npos || exists(text)) return whole;
  const std::string head = text.substr(0, colon);
  const std::string tail = text.substr(colon + 1);
  if (tail.empty()) return {head, std::string(default_dataset)};
  if ((tail.ends_with(".h5") || tail.ends_with(".hdf5")) && !exists(head)) return whole;
  return {head, tail};
}

}  // namespace volup::tool
