// SPDX-License-Identifier: Apache-2.0
//
// The parts of a loaded TorchScript module by name: picks one out, and says what there is.
#ifndef VOLUP_LOAD_TORCHSCRIPT_SUBMODULE_H_
#define VOLUP_LOAD_TORCHSCRIPT_SUBMODULE_H_

#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <optional>
#include <string>

namespace volup::torchscript {

// The submodule of that name, in which the parts of wrappers may be left out. Throws
// module::Refusal with the names there are.
torch::jit::Module find_submodule(const torch::jit::Module& root, const std::string& name);

// The kind of block that a module is, or nothing.
using BlockKind = std::function<std::optional<std::string>(const torch::jit::Module&)>;

// For a module that is refused as a whole: which of its submodules are blocks, and what else it
// has. Empty where none is.
std::string blocks_within(const torch::jit::Module& root, const BlockKind& kind_of);

}  // namespace volup::torchscript

#endif  // VOLUP_LOAD_TORCHSCRIPT_SUBMODULE_H_
