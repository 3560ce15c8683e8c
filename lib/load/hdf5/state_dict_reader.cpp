// SPDX-License-Identifier: Apache-2.0
//
// Reads a state_dict from HDF5; see state_dict_reader.h.
#include "load/hdf5/state_dict_reader.h"

#include <algorithm>
#include <map>

namespace volup::hdf5 {
namespace {

using module::LoadedModel;

// A dataset's path as PyTorch names the parameter, without what wrappers put before it.
std::string parameter_name(const std::string& path) {
  std::string name = path;
  std::replace(name.begin(), name.end(), '/', '.');
  for (bool stripped = true; stripped;) {
    stripped = false;
    for (const std::string wrapper : {"module.", "_orig_mod."}) {
      if (name.starts_with(wrapper) && name.size() > wrapper.size()) {
        name.erase(0, wrapper.size());
        stripped = true;
      }
    }
  }
  return name;
}

// "up.conv" of "up.conv.weight", "" of "weight"; nothing where the last word is another.
bool split_last(const std::string& name, const std::string& word, std::string* prefix) {
  if (name == word) {
    prefix->clear();
    return true;
  }
  if (!name.ends_with("." + word)) return false;
  *prefix = name.substr(0, name.size() - word.size() - 1);
  return true;
}

using Parameters = std::map<std::string, const TreeDataset*>;

Parameters parameters_of(ForeignFile* file) {
  Parameters parameters;
  for (const TreeDataset& dataset : file->tree.datasets) {
    const auto [place, is_new] = parameters.emplace(parameter_name(dataset.path), &dataset);
    if (!is_new) {
      file->faults.add("parameter " + module::quoted(place->first),
                       place->second->path + " and " + dataset.path, "one dataset of that name",
                       "/");
    }
  }
  return parameters;
}

const TreeDataset* find(const Parameters& parameters, const std::string& name) {
  const auto found = parameters.find(name);
  return found == parameters.end() ? nullptr : found->second;
}

std::string dotted(const std::string& prefix, const std::string& word) {
  return prefix.empty() ? word : prefix + "." + word;
}

// The scalar that logsumexp_swish_clamp subtracts is a parameter "bias" of the block around the
// convolution. Null where there is none.
const TreeDataset* read_subtract(const Parameters& parameters, const std::string& convolution,
                                 ForeignFile* file, LoadedModel* model) {
  if (convolution.empty()) return nullptr;
  const size_t dot = convolution.rfind('.');
  const std::string block = dot == std::string::npos ? "" : convolution.substr(0, dot);
  const TreeDataset* const scalar = find(parameters, dotted(block, "bias"));
  if (!scalar) {
    model->note("the file has no scalar " + dotted(block, "bias") + ": subtracts " +
                module::to_text(model->epilogue.subtract));
    return nullptr;
  }
  if (count_of(scalar->shape) != 1) {
    file->faults.add("shape of " + scalar->path, module::list_text(scalar->shape),
                     "one element, the number that is subtracted", scalar->path);
    return scalar;
  }
  const Handle dataset =
      need(H5Dopen2(file->root.id, scalar->path.c_str(), H5P_DEFAULT), scalar->path.c_str());
  if (const auto value =
          read_floats(dataset.get(), scalar->path, scalar->shape, file->size, &file->faults)) {
    model->epilogue.subtract = value->values[0];
  }
  return scalar;
}

}  // namespace

bool is_state_dict(const Tree& tree) {
  return std::any_of(tree.datasets.begin(), tree.datasets.end(), [](const TreeDataset& each) {
    std::string prefix;
    return split_last(parameter_name(each.path), "weight", &prefix);
  });
}

LoadedModel read_state_dict(ForeignFile* file) {
  LoadedModel model;
  model.kind = "state-dict-hdf5";
  const Parameters parameters = parameters_of(file);
  std::vector<Candidate> candidates;
  for (const auto& [name, dataset] : parameters) {
    std::string prefix;
    if (dataset->shape.size() != 5 || !split_last(name, "weight", &prefix)) continue;
    candidates.push_back(
        {prefix.empty() ? "weight" : prefix, dataset, find(parameters, dotted(prefix, "bias"))});
  }
  const Candidate* const chosen = choose_by_options(candidates, file, &model);
  if (!chosen) return model;
  complete_geometry(*chosen, Layout::kTorch, &model.geometry, &file->faults);
  read_layer(*chosen, Layout::kTorch, file, &model);
  std::vector<const TreeDataset*> used = {chosen->weight, chosen->bias};
  if (model.epilogue.kind == VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP) {
    used.push_back(
        read_subtract(parameters, chosen->name == "weight" ? "" : chosen->name, file, &model));
  }
  list_unused(*file, used, &model);
  return model;
}

}  // namespace volup::hdf5
