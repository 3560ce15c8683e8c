// SPDX-License-Identifier: Apache-2.0
//
// What a file is, from its first bytes: never from its name.
#ifndef VOLUP_LOAD_FILE_KIND_H_
#define VOLUP_LOAD_FILE_KIND_H_

#include <cstddef>
#include <span>
#include <string_view>

#include "status.h"

namespace volup {

// One row a loader module.
struct FileKind {
  std::string_view name;    // for people: "HDF5"
  std::string_view module;  // file name of the module that reads it
};

// The kind that a module reads, or a failure that names what the file is instead.
Result<FileKind> detect_file_kind(std::span<const std::byte> bytes);

// The kind volup writes.
FileKind hdf5_file_kind();

}  // namespace volup

#endif  // VOLUP_LOAD_FILE_KIND_H_
