// SPDX-License-Identifier: Apache-2.0
//
// Names of parameters and submodules as PyTorch gives them: parts with dots between.
#ifndef VOLUP_LOAD_ARCHIVE_NAMES_H_
#define VOLUP_LOAD_ARCHIVE_NAMES_H_

#include <algorithm>
#include <string>
#include <string_view>

namespace volup::archive {

// name without the parts that wrappers add: "module" (DataParallel), "_orig_mod" (torch.compile).
inline std::string without_wrappers(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    const size_t dot = std::min(name.find('.'), name.size());
    const std::string_view part = name.substr(0, dot);
    if (part != "module" && part != "_orig_mod") {
      if (!out.empty()) out += '.';
      out += part;
    }
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  return out;
}

}  // namespace volup::archive

#endif  // VOLUP_LOAD_ARCHIVE_NAMES_H_
