// SPDX-License-Identifier: Apache-2.0
//
// The entries of a PyTorch archive without the one folder that PyTorch puts around them.
#ifndef VOLUP_LOAD_ARCHIVE_FOLDER_H_
#define VOLUP_LOAD_ARCHIVE_FOLDER_H_

#include <algorithm>
#include <string>

#include "load/archive/zip_archive.h"

namespace volup::archive {

class Folder {
 public:
  explicit Folder(const ZipArchive& archive) : archive_(archive) {
    if (archive.entries().empty()) {
      fault_ = "an empty zip archive";
      return;
    }
    const std::string& first = archive.entries().front().name;
    const size_t slash = first.find('/');
    if (slash == std::string::npos) {
      fault_ = "a zip archive with files at its top";
      return;
    }
    prefix_ = first.substr(0, slash + 1);
    for (const ZipEntry& entry : archive.entries()) {
      if (entry.name.compare(0, prefix_.size(), prefix_) != 0) {
        fault_ = "a zip archive with more than one folder at its top";
      }
    }
  }

  // What the archive is instead; empty: it has one folder.
  const std::string& fault() const { return fault_; }

  const ZipEntry* find(const std::string& name) const { return archive_.find(prefix_ + name); }
  bool has(const std::string& name) const { return find(name) != nullptr; }
  bool has_under(const std::string& folder) const {
    const std::string start = prefix_ + folder;
    return std::any_of(archive_.entries().begin(), archive_.entries().end(),
                       [&start](const ZipEntry& entry) {
                         return entry.name.compare(0, start.size(), start) == 0;
                       });
  }
  // Empty if there is none.
  std::string read(const std::string& name) const {
    const ZipEntry* entry = find(name);
    return entry ? archive_.read(*entry) : std::string();
  }

 private:
  const ZipArchive& archive_;
  std::string prefix_;
  std::string fault_;
};

}  // namespace volup::archive

#endif  // VOLUP_LOAD_ARCHIVE_FOLDER_H_
