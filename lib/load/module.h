// SPDX-License-Identifier: Apache-2.0
//
// Finding and opening loader modules. A module stays open for the life of the process.
#ifndef VOLUP_LOAD_MODULE_H_
#define VOLUP_LOAD_MODULE_H_

#include <string>

#include "load/file_kind.h"
#include "load/module_abi.h"
#include "status.h"

namespace volup {

// directory: where to look; empty: the environment's VOLUP_MODULE_DIR, else volup/ beside the
// library. Fails with what the dynamic linker said.
Result<volup_module> open_module(const FileKind& kind, const std::string& directory);

}  // namespace volup

#endif  // VOLUP_LOAD_MODULE_H_
