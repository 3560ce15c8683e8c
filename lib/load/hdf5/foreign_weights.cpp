// SPDX-License-Identifier: Apache-2.0
//
// Weights that others wrote; see foreign_weights.h.
#include "load/hdf5/foreign_weights.h"

#include <algorithm>
#include <array>

namespace volup::hdf5 {
namespace {

using module::list_text;
using module::quoted;
using module::to_text;

constexpr size_t kListed = 12;

std::string list_of(const std::vector<Candidate>& candidates) {
  std::vector<std::string> texts;
  for (const Candidate& candidate : candidates) {
    if (texts.size() == kListed) {
      texts.push_back("and " + to_text(candidates.size() - kListed) + " more");
      break;
    }
    texts.push_back(describe(candidate.name, candidate.weight->shape));
  }
  return module::join(texts, ", ");
}

// A weight's axes as volup names them.
struct Axes {
  int64_t in, out_of_group;
  std::array<int64_t, 3> kernel;
};

Axes axes_of(const std::vector<int64_t>& shape, Layout layout) {
  if (layout == Layout::kTorch) return {shape[0], shape[1], {shape[2], shape[3], shape[4]}};
  return {shape[4], shape[3], {shape[0], shape[1], shape[2]}};
}

module::Floats from_keras(const module::Floats& values, const Axes& axes) {
  const auto in = static_cast<size_t>(axes.in), out = static_cast<size_t>(axes.out_of_group);
  const size_t taps = values.size() / (in * out);
  module::Floats ordered(values.size());
  size_t next = 0;
  for (size_t i = 0; i < in; ++i) {
    for (size_t o = 0; o < out; ++o) {
      for (size_t tap = 0; tap < taps; ++tap) ordered[next++] = values[(tap * out + o) * in + i];
    }
  }
  return ordered;
}

}  // namespace

const TreeDataset* ForeignFile::find(const std::string& path) const {
  const auto found = std::find_if(tree.datasets.begin(), tree.datasets.end(),
                                  [&](const TreeDataset& each) { return each.path == path; });
  return found == tree.datasets.end() ? nullptr : &*found;
}

const Candidate* choose(const std::vector<Candidate>& candidates, ForeignFile* file) {
  const std::string wanted = file->submodule();
  std::vector<const Candidate*> fitting;
  for (const Candidate& candidate : candidates) {
    const auto& aliases = candidate.aliases;
    if (wanted.empty() || candidate.name == wanted ||
        std::find(aliases.begin(), aliases.end(), wanted) != aliases.end()) {
      fitting.push_back(&candidate);
    }
  }
  if (fitting.empty()) {
    for (const Candidate& candidate : candidates) {
      if (candidate.name.starts_with(wanted + ".") || candidate.name.starts_with(wanted + "/")) {
        fitting.push_back(&candidate);
      }
    }
  }
  if (fitting.size() == 1) return fitting[0];
  if (candidates.empty()) {
    file->faults.add("weight", "none", "a dataset of five axes, a transposed convolution's", "/");
  } else if (!wanted.empty()) {
    file->faults.add("submodule " + quoted(wanted),
                     fitting.empty() ? "none of that name" : "several of that name",
                     "one of " + list_of(candidates), "--submodule");
  } else {
    file->faults.add("weights of five axes", list_of(candidates),
                     "one, or --submodule with the name of one", "/");
  }
  return nullptr;
}

bool require_options(bool geometry_known, bool epilogue_known,
                     const std::vector<Candidate>& candidates, ForeignFile* file) {
  std::vector<std::string> missing, fields, flags;
  if (!epilogue_known) {
    missing.push_back("no type");
    fields.push_back("epilogue");
    flags.push_back("--type A|B|C");
  }
  if (!geometry_known) {
    missing.push_back("no geometry");
    fields.push_back("geometry");
    flags.push_back(
        "--stride N, with --padding, --output-padding, --dilation, --groups as they are");
  }
  if (missing.empty()) return true;
  file->faults.add("weights alone", module::join(missing, " and "),
                   module::join(fields, " and ") + " in the load options (volup: " +
                       module::join(flags, " and ") + ") for " + list_of(candidates),
                   file->root.path);
  return false;
}

const Candidate* choose_by_options(const std::vector<Candidate>& candidates, ForeignFile* file,
                                   module::LoadedModel* model) {
  const Candidate* const chosen = choose(candidates, file);
  const volup_load_options& options = file->options;
  const bool complete =
      candidates.empty() || require_options(options.geometry, options.epilogue, candidates, file);
  if (!chosen || !complete) return nullptr;
  model->geometry = *options.geometry;
  model->epilogue = *options.epilogue;
  return chosen;
}

void complete_geometry(const Candidate& candidate, Layout layout, volup_geometry* geometry,
                       Faults* faults) {
  const Axes axes = axes_of(candidate.weight->shape, layout);
  const auto complete = [&](const char* name, int64_t from_shape, int64_t* value) {
    if (*value == 0) *value = from_shape;
    if (*value == from_shape) return;
    faults->add(name, to_text(from_shape) + " in a weight of " + list_text(candidate.weight->shape),
                to_text(*value), candidate.weight->path);
  };
  int64_t out_channels = axes.out_of_group;
  if (!module::multiply_into(&out_channels, std::max<int64_t>(geometry->groups, 1))) {
    out_channels = INT64_MAX;
  }
  complete("in_channels", axes.in, &geometry->in_channels);
  complete("out_channels", out_channels, &geometry->out_channels);
  static constexpr const char* kKernel[] = {"kernel on axis D", "kernel on axis H",
                                            "kernel on axis W"};
  for (size_t i = 0; i < 3; ++i) complete(kKernel[i], axes.kernel[i], &geometry->kernel[i]);
}

void read_layer(const Candidate& candidate, Layout layout, ForeignFile* file,
                module::LoadedModel* model) {
  const auto read = [file](const TreeDataset& each, const std::vector<int64_t>& shape) {
    const Handle dataset =
        need(H5Dopen2(file->root.id, each.path.c_str(), H5P_DEFAULT), each.path.c_str());
    return read_floats(dataset.get(), each.path, shape, file->size, &file->faults);
  };
  const std::vector<int64_t>& shape = candidate.weight->shape;
  if (count_of(shape) == 0) {
    file->faults.add("shape of " + candidate.weight->path, list_text(shape), "no axis of size 0",
                     candidate.weight->path);
  } else if (auto weight = read(*candidate.weight, shape)) {
    model->weight = layout == Layout::kTorch ? std::move(weight->values)
                                             : from_keras(weight->values, axes_of(shape, layout));
    model->weight_dtype = weight->dtype;
    model->weight_name = candidate.weight->path;
  }
  if (!candidate.bias) return;
  if (auto bias = read(*candidate.bias, {model->geometry.out_channels})) {
    model->bias = std::move(bias->values);
    model->bias_name = candidate.bias->path;
    model->has_bias = true;
  }
}

void list_unused(const ForeignFile& file, const std::vector<const TreeDataset*>& used,
                 module::LoadedModel* model) {
  const auto add = [model](const std::string& path) {
    std::string name = path;
    for (char& c : name) c = static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    model->unused.push_back(std::move(name));
  };
  for (const TreeDataset& dataset : file.tree.datasets) {
    if (std::find(used.begin(), used.end(), &dataset) == used.end()) add(dataset.path);
  }
  for (const std::string& path : file.tree.others) add(path);
}

}  // namespace volup::hdf5
