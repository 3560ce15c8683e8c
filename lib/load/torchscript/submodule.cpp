// SPDX-License-Identifier: Apache-2.0
//
// See submodule.h.
#include "load/torchscript/submodule.h"

#include <string_view>
#include <vector>

#include "load/archive/names.h"
#include "load/module_support.h"

namespace volup::torchscript {
namespace {

using archive::without_wrappers;

// std::quoted would be found too.
std::string in_quotes(std::string_view text) { return module::quoted(text); }

constexpr size_t kListed = 16;
// Following a graph takes time: a file with more submodules has its blocks named by its owner.
constexpr int kTried = 200;

struct Named {
  std::string name;
  torch::jit::Module module;
};

std::vector<Named> named_submodules(const torch::jit::Module& root) {
  std::vector<Named> found;
  for (const auto& each : root.named_modules()) {
    if (!each.name.empty()) found.push_back({each.name, each.value});
  }
  return found;
}

// "'stem' (Conv3d)"
std::string described(const Named& named) {
  const auto type = named.module.type()->name();
  return in_quotes(named.name) + (type ? " (" + type->name() + ")" : "");
}

std::string listed(std::vector<std::string> parts) {
  const size_t count = parts.size();
  if (count > kListed) {
    parts.resize(kListed);
    parts.push_back("... (" + module::to_text(count) + ")");
  }
  return module::join(parts, ", ");
}

bool lies_under(std::string_view name, std::string_view parent) {
  return name.size() > parent.size() && name.starts_with(parent) && name[parent.size()] == '.';
}

}  // namespace

torch::jit::Module find_submodule(const torch::jit::Module& root, const std::string& name) {
  const std::vector<Named> all = named_submodules(root);
  for (const Named& each : all) {
    if (each.name == name) return each.module;
  }
  const std::string plain = without_wrappers(name);
  for (const Named& each : all) {
    if (!plain.empty() && without_wrappers(each.name) == plain) return each.module;
  }
  if (all.empty()) {
    module::refuse_unsupported("submodule: got " + in_quotes(name) +
                               ", need a file with submodules (a frozen one has none left)");
  }
  std::vector<std::string> parts;
  for (const Named& each : all) parts.push_back(described(each));
  module::refuse_unsupported("submodule: got " + in_quotes(name) + ", need one of " +
                             listed(parts));
}

std::string blocks_within(const torch::jit::Module& root, const BlockKind& kind_of) {
  std::vector<std::string> names, blocks, others;
  const std::vector<Named> all = named_submodules(root);
  int tried = 0;
  for (const Named& each : all) {
    const bool is_inside = std::any_of(names.begin(), names.end(), [&](const std::string& block) {
      return lies_under(each.name, block);
    });
    if (is_inside || ++tried > kTried) continue;
    if (const auto kind = kind_of(each.module)) {
      names.push_back(each.name);
      blocks.push_back(in_quotes(each.name) + " (" + *kind + ")");
    }
  }
  if (blocks.empty()) return "";
  for (const Named& each : all) {
    const bool is_apart = std::none_of(names.begin(), names.end(), [&](const std::string& block) {
      return each.name == block || lies_under(each.name, block) || lies_under(block, each.name);
    });
    if (is_apart) others.push_back(described(each));
  }
  return "; of its submodules volup computes " + listed(blocks) +
         " (volup: --submodule NAME picks one out)" +
         (others.empty() ? "" : "; it also has " + listed(others));
}

}  // namespace volup::torchscript
