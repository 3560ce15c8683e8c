// SPDX-License-Identifier: Apache-2.0
//
// Reads what Keras writes; see keras_reader.h.
//
// The legacy format has a group a layer, named in the attribute layer_names; each names its
// datasets in weight_names, with slashes. A list too long for one attribute is cut into
// layer_names0, layer_names1 and so on. A whole model has these groups in /model_weights, and its
// JSON in
// /@model_config. Keras 3's .weights.h5 has a group "vars" a layer, whose datasets are numbered.
#include "load/hdf5/keras_reader.h"

#include <algorithm>
#include <optional>

#include "load/hdf5/keras_config.h"

namespace volup::hdf5 {
namespace {

using module::LoadedModel;
using module::quoted;

constexpr const char* kConfig = "model_config";
constexpr const char* kLayerNames = "layer_names";
constexpr const char* kWeightNames = "weight_names";
constexpr const char* kModelWeights = "model_weights";
constexpr const char* kFirstVariable = "vars/0";

bool has_list(const Place& place, const std::string& name) {
  return has_attribute(place, name.c_str()) || has_attribute(place, (name + "0").c_str());
}

// A list that may be cut into numbered attributes.
std::vector<std::string> read_whole_list(const Place& place, const std::string& name,
                                         Faults* faults) {
  if (has_attribute(place, name.c_str()) || !has_list(place, name)) {
    return read_strings(place, name.c_str(), faults).value_or(std::vector<std::string>());
  }
  std::vector<std::string> all;
  for (int64_t part = 0; has_attribute(place, (name + module::to_text(part)).c_str()); ++part) {
    const auto some = read_strings(place, (name + module::to_text(part)).c_str(), faults);
    if (!some) break;
    all.insert(all.end(), some->begin(), some->end());
  }
  return all;
}

std::string last_word(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// "kernel" of "up/kernel:0".
std::string variable_word(const std::string& path) {
  const std::string word = last_word(path);
  return word.substr(0, word.find(':'));
}

// ---- Legacy -----------------------------------------------------------------------------------

// Kernels of five axes, by the datasets that the layers name.
std::vector<Candidate> legacy_candidates(const std::string& base, ForeignFile* file) {
  std::vector<Candidate> candidates;
  Faults& faults = file->faults;
  Handle group;
  if (!base.empty()) group = open_object(file->root, base.c_str(), H5I_GROUP, &faults);
  const Place place{group ? group.get() : file->root.id, "/" + base};
  const std::string before = base.empty() ? "" : base + "/";
  for (const std::string& layer : read_whole_list(place, kLayerNames, &faults)) {
    if (layer.empty() || H5Lexists(place.id, layer.c_str(), H5P_DEFAULT) <= 0) {
      faults.add("group of layer " + quoted(layer), "nothing", "a group", place.path);
      continue;
    }
    const Handle own = open_object(place, layer.c_str(), H5I_GROUP, &faults);
    if (!own) continue;
    std::string path = before;
    path += layer;
    const Place own_place{own.get(), "/" + path};
    path += '/';
    std::vector<std::pair<std::string, const TreeDataset*>> variables;
    for (const std::string& name : read_whole_list(own_place, kWeightNames, &faults)) {
      const TreeDataset* const dataset = file->find(path + name);
      if (!dataset) {
        faults.add("weight " + quoted(name), "nothing", "a dataset", own_place.path);
      } else {
        variables.emplace_back(name, dataset);
      }
    }
    for (const auto& [name, dataset] : variables) {
      if (dataset->shape.size() != 5 || variable_word(name) != "kernel") continue;
      Candidate candidate{layer, dataset, nullptr, {last_word(folder_of(name)), folder_of(name)}};
      for (const auto& [other, bias] : variables) {
        if (variable_word(other) == "bias" && folder_of(other) == folder_of(name)) {
          candidate.bias = bias;
        }
      }
      // A model inside the model is one group with many kernels: each has its own name.
      const std::string inner = last_word(folder_of(name));
      if (!inner.empty()) candidate.name = inner;
      candidate.aliases.push_back(layer);
      candidates.push_back(candidate);
    }
  }
  return candidates;
}

// Takes what the JSON says of the chosen layer.
const KerasConvolution* choose_layer(const KerasModel& model, ForeignFile* file) {
  std::string names;
  const KerasConvolution* found = nullptr;
  size_t fitting = 0;
  for (const KerasConvolution& each : model.convolutions) {
    names += (names.empty() ? "" : ", ") + each.name;
    if (!file->submodule().empty() && each.name != file->submodule()) continue;
    found = &each;
    ++fitting;
  }
  if (model.convolutions.empty()) {
    std::vector<std::string> others;
    for (const KerasLayer& layer : model.others) {
      others.push_back(quoted(layer.name) + " (" + layer.class_name + ")");
    }
    others.resize(std::min<size_t>(others.size(), 12));
    file->faults.add("layers", others.empty() ? "none" : module::join(others, ", "),
                     "a Conv3DTranspose", "/@model_config");
    return nullptr;
  }
  if (fitting != 1) {
    const std::string wanted = file->submodule();
    file->faults.add(
        wanted.empty() ? "Conv3DTranspose layers" : "submodule " + quoted(wanted),
        wanted.empty() ? names : "no one layer of that name",
        wanted.empty() ? "one, or --submodule with the name of one" : "one of " + names,
        "/@model_config");
    return nullptr;
  }
  return found;
}

void refuse_other_layers(const KerasModel& model, const KerasConvolution& layer,
                         ForeignFile* file) {
  if (!file->submodule().empty()) return;
  std::vector<std::string> others;
  for (const KerasLayer& other : model.others) {
    const auto& matched = layer.epilogue_layers;
    if (std::find(matched.begin(), matched.end(), other.name) == matched.end()) {
      others.push_back(quoted(other.name) + " (" + other.class_name + ")");
    }
  }
  if (others.empty()) return;
  others.resize(std::min<size_t>(others.size(), 12));
  file->faults.add("other layers", module::join(others, ", "),
                   "the Conv3DTranspose alone, or --submodule " + layer.name +
                       " with --type for what follows it",
                   "/@model_config");
}

LoadedModel read_whole_model(ForeignFile* file, const std::string& base, LoadedModel model) {
  const std::string json = read_string(file->root, kConfig, &file->faults).value_or("");
  std::string fault;
  const auto config = parse_keras_model(json, &fault);
  if (!config) {
    file->faults.list.push_back(fault);
    return model;
  }
  const std::vector<Candidate> candidates = legacy_candidates(base, file);
  const KerasConvolution* const layer = choose_layer(*config, file);
  if (!layer) return model;
  const auto candidate = std::find_if(candidates.begin(), candidates.end(), [&](const auto& each) {
    return each.name == layer->name ||
           std::find(each.aliases.begin(), each.aliases.end(), layer->name) != each.aliases.end();
  });
  refuse_other_layers(*config, *layer, file);
  auto& list = file->faults.list;
  list.insert(list.end(), layer->faults.begin(), layer->faults.end());
  if (candidate == candidates.end()) {
    file->faults.add("kernel of layer " + quoted(layer->name), "nothing", "a dataset of five axes",
                     "/" + base);
    return model;
  }
  // Whoever picks a layer out says what follows it.
  const bool epilogue_in_file =
      layer->softmax_sigmoid && (file->submodule().empty() || !file->options.epilogue);
  if (epilogue_in_file) {
    model.epilogue.kind = VOLUP_EPILOGUE_SOFTMAX_SIGMOID;
    model.epilogue.divisor = 1;
  } else if (file->options.epilogue) {
    model.epilogue = *file->options.epilogue;
  }
  const bool known = epilogue_in_file || file->options.epilogue;
  if (!require_options(true, known, {*candidate}, file) || !layer->faults.empty()) return model;
  Candidate chosen = *candidate;
  if (layer->use_bias != (chosen.bias != nullptr)) {
    file->faults.add("bias of layer " + quoted(layer->name), chosen.bias ? "a dataset" : "nothing",
                     layer->use_bias ? "a dataset" : "none", "/" + base);
    return model;
  }
  model.geometry = layer->geometry;
  complete_geometry(chosen, Layout::kKeras, &model.geometry, &file->faults);
  read_layer(chosen, Layout::kKeras, file, &model);
  if (layer->channels_last) {
    model.note("the Keras model's tensors are channels_last; volup's are N, C, D, H, W");
  }
  list_unused(*file, {chosen.weight, chosen.bias}, &model);
  return model;
}

// ---- Weights alone ------------------------------------------------------------------------------

// Layers of a .weights.h5. A layer's own name, where it differs from its group's, is an attribute.
std::vector<Candidate> numbered_candidates(ForeignFile* file) {
  std::vector<Candidate> candidates;
  for (const TreeDataset& dataset : file->tree.datasets) {
    const std::string& path = dataset.path;
    const bool is_first =
        path == kFirstVariable || path.ends_with("/" + std::string(kFirstVariable));
    if (!is_first || dataset.shape.size() != 5 || path.starts_with("optimizer/")) continue;
    const std::string vars = folder_of(path), layer = folder_of(vars);
    Candidate candidate{layer.empty() ? vars : layer, &dataset, file->find(vars + "/1"), {}};
    candidate.aliases.push_back(last_word(layer));
    const Handle group = need(H5Gopen2(file->root.id, vars.c_str(), H5P_DEFAULT), vars.c_str());
    const Place place{group.get(), "/" + vars};
    if (has_attribute(place, "name")) {
      candidate.aliases.push_back(read_string(place, "name", &file->faults).value_or(""));
    }
    candidates.push_back(candidate);
  }
  return candidates;
}

LoadedModel read_weights_alone(const std::vector<Candidate>& candidates, ForeignFile* file,
                               LoadedModel model) {
  const Candidate* const chosen = choose_by_options(candidates, file, &model);
  if (!chosen) return model;
  if (model.geometry.groups != 1) {
    file->faults.add("groups", module::to_text(model.geometry.groups),
                     "1, as Keras' Conv3DTranspose has it", chosen->weight->path);
    return model;
  }
  complete_geometry(*chosen, Layout::kKeras, &model.geometry, &file->faults);
  read_layer(*chosen, Layout::kKeras, file, &model);
  model.note("the file does not name layer classes: " + chosen->weight->path +
             " is taken for a Conv3DTranspose's kernel, axes kD, kH, kW, out, in");
  list_unused(*file, {chosen->weight, chosen->bias}, &model);
  return model;
}

bool has_numbered_variables(const Tree& tree) {
  return std::any_of(tree.datasets.begin(), tree.datasets.end(), [](const TreeDataset& each) {
    return each.path == kFirstVariable || each.path.ends_with("/" + std::string(kFirstVariable));
  });
}

// The group that holds the legacy format's layers, by its attributes: "" is the root.
std::optional<std::string> legacy_base(const ForeignFile& file) {
  if (has_list(file.root, kLayerNames)) return "";
  const htri_t exists = H5Lexists(file.root.id, kModelWeights, H5P_DEFAULT);
  if (exists <= 0) return std::nullopt;
  Faults ignored;
  const Handle group = open_object(file.root, kModelWeights, H5I_GROUP, &ignored);
  if (!group || !has_list({group.get(), kModelWeights}, kLayerNames)) return std::nullopt;
  return kModelWeights;
}

}  // namespace

bool is_keras(const ForeignFile& file) {
  return has_attribute(file.root, kConfig) || legacy_base(file) ||
         has_numbered_variables(file.tree);
}

LoadedModel read_keras(ForeignFile* file) {
  LoadedModel model;
  model.kind = "keras-hdf5";
  const auto base = legacy_base(*file);
  const auto read_version = [&](const Place& place) {
    if (!has_attribute(place, "keras_version")) return;
    model.producer = "Keras " + read_string(place, "keras_version", &file->faults).value_or("");
  };
  read_version(file->root);
  if (has_attribute(file->root, kConfig)) {
    if (base) return read_whole_model(file, *base, std::move(model));
    file->faults.add("layers", "none", "the weights of a model that has a model_config", "/");
    return model;
  }
  if (base) return read_weights_alone(legacy_candidates(*base, file), file, std::move(model));
  return read_weights_alone(numbered_candidates(file), file, std::move(model));
}

}  // namespace volup::hdf5
