// SPDX-License-Identifier: Apache-2.0
//
// From a file to a Model and back: reads the bytes, finds the kind, lets its module speak.
#ifndef VOLUP_LOAD_LOAD_H_
#define VOLUP_LOAD_LOAD_H_

#include <memory>
#include <optional>
#include <string>

#include "model.h"
#include "status.h"

namespace volup {

// volup_load_options, read: valid, and no pointer of the caller's.
struct LoadOptions {
  std::string module_directory;  // empty: the default
  std::string submodule;         // empty: none
  bool ignore_crc = false;
  bool allow_nonfinite = false;
  std::optional<Epilogue> epilogue;
  std::optional<ConvTranspose3d> geometry;  // channels and kernel sizes may be 0: the file's
};

Result<std::shared_ptr<const Model>> load_model_file(const std::string& path,
                                                     const LoadOptions& options);
Result<std::shared_ptr<const Model>> load_model_memory(const void* data, size_t size,
                                                       const LoadOptions& options);
Status save_model_file(const Model& model, const std::string& path, const LoadOptions& options);

}  // namespace volup

#endif  // VOLUP_LOAD_LOAD_H_
