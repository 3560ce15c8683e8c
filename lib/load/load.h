// SPDX-License-Identifier: Apache-2.0
//
// From a file to a Model and back: reads the bytes, finds the kind, lets its module speak.
#ifndef VOLUP_LOAD_LOAD_H_
#define VOLUP_LOAD_LOAD_H_

#include <memory>
#include <string>

#include "model.h"
#include "status.h"

namespace volup {

struct LoadOptions {
  std::string module_directory;  // empty: the default
};

Result<std::shared_ptr<const Model>> load_model_file(const std::string& path,
                                                     const LoadOptions& options);
Result<std::shared_ptr<const Model>> load_model_memory(const void* data, size_t size,
                                                       const LoadOptions& options);
Status save_model_file(const Model& model, const std::string& path, const LoadOptions& options);

}  // namespace volup

#endif  // VOLUP_LOAD_LOAD_H_
