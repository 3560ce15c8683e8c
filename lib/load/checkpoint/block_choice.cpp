// SPDX-License-Identifier: Apache-2.0
//
// See block_choice.h.
#include "load/checkpoint/block_choice.h"

#include <algorithm>

#include "load/archive/names.h"
#include "load/checkpoint/tensor_values.h"

namespace volup::checkpoint {
namespace {

using archive::without_wrappers;
using module::LoadedModel;
using module::quoted;
using module::refuse_unsupported;
using module::to_text;

constexpr std::string_view kWeight = "weight";

bool ends_with_weight(const StoredTensor& tensor) {
  return std::string_view(tensor.name).ends_with(kWeight);
}
bool may_be_weight(const StoredTensor& tensor) {
  return tensor.special.empty() && tensor.shape.size() == 5 && ends_with_weight(tensor);
}

// "'up.weight' [3, 16, 3, 3, 3] float32"
std::string described(const StoredTensor& tensor) {
  if (!tensor.special.empty()) return quoted(tensor.name) + " (" + tensor.special + ")";
  return quoted(tensor.name) + " " + module::list_text(tensor.shape) + " " + tensor.dtype;
}

std::string listed(const std::vector<const StoredTensor*>& tensors) {
  constexpr size_t kNamed = 16;
  std::vector<std::string> parts;
  for (const StoredTensor* tensor : tensors) {
    if (parts.size() == kNamed) {
      parts.push_back("... (" + to_text(tensors.size()) + ")");
      break;
    }
    parts.push_back(described(*tensor));
  }
  return module::join(parts, ", ");
}

std::vector<const StoredTensor*> select(const TensorFile& file,
                                        bool (*wanted)(const StoredTensor&)) {
  std::vector<const StoredTensor*> found;
  for (const StoredTensor& tensor : file.tensors) {
    if (wanted(tensor)) found.push_back(&tensor);
  }
  return found;
}

// "decoder.up" names 'decoder.up.weight', 'decoder.up.conv.weight', and itself.
bool lies_in(std::string_view name, std::string_view submodule) {
  return name == submodule || (name.size() > submodule.size() + 1 && name.starts_with(submodule) &&
                               name[submodule.size()] == '.');
}
bool is_named_by(const StoredTensor& tensor, const std::string& submodule) {
  return lies_in(tensor.name, submodule) ||
         lies_in(without_wrappers(tensor.name), without_wrappers(submodule));
}

// A weight that is stored in two factors is not in the file.
void refuse_reparametrised(const TensorFile& file) {
  for (const StoredTensor& tensor : file.tensors) {
    const std::string_view name = tensor.name;
    if (name.ends_with("weight_g") || name.ends_with("weight_orig") ||
        name.find("parametrizations.") != std::string_view::npos) {
      refuse_unsupported("weights: got " + described(tensor) +
                         ", a part of a weight that PyTorch computes from several (weight or "
                         "spectral normalisation), need it removed before the file is saved "
                         "(torch.nn.utils.parametrize.remove_parametrizations)");
    }
  }
}

[[noreturn]] void refuse_without_weight(const TensorFile& file, const std::string& submodule) {
  refuse_reparametrised(file);
  const auto five = select(file, [](const StoredTensor& t) { return t.shape.size() == 5; });
  const auto all = select(file, [](const StoredTensor&) { return true; });
  const std::string in = submodule.empty() ? "" : " in submodule " + quoted(submodule);
  refuse_unsupported(
      "weights: got no tensor of 5 axes whose name ends with 'weight'" + in + ", need one; " +
      (five.empty() ? "the file has " + listed(all) : "its tensors of 5 axes are " + listed(five)));
}

const StoredTensor& choose_weight(const TensorFile& file, const std::string& submodule) {
  const auto candidates = select(file, may_be_weight);
  std::vector<const StoredTensor*> named;
  for (const StoredTensor* candidate : candidates) {
    if (submodule.empty() || is_named_by(*candidate, submodule)) named.push_back(candidate);
  }
  if (named.empty() && !candidates.empty()) {
    refuse_unsupported("submodule: got " + quoted(submodule) + ", need one of " +
                       listed(candidates));
  }
  if (named.empty()) refuse_without_weight(file, submodule);
  if (named.size() > 1) {
    refuse_unsupported("weights: got " + to_text(named.size()) + " that may be the block's, " +
                       listed(named) +
                       ", need submodule (volup: --submodule NAME) to name one of them");
  }
  return *named[0];
}

void need_the_rest(const TensorFile& file, const StoredTensor* weight,
                   const volup_load_options& options) {
  if (options.epilogue && options.geometry) return;
  const bool neither = !options.epilogue && !options.geometry;
  const std::string missing = neither            ? "no type and no geometry"
                              : options.geometry ? "no type"
                                                 : "no geometry";
  const auto candidates =
      weight ? std::vector<const StoredTensor*>{weight} : select(file, may_be_weight);
  refuse_unsupported(
      "a file of weights alone (" + file.kind + "): got " + missing +
      ", need epilogue and geometry in the load options (volup: --type A|B|C and --stride N, with "
      "--padding, --output-padding, --dilation, --groups as they are) for " +
      listed(candidates));
}

const StoredTensor* find(const TensorFile& file, std::string_view name) {
  for (const StoredTensor& tensor : file.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

// "up.conv" of "up.conv.weight"; "" of "weight".
std::string parent_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  return std::string(name.substr(0, dot == std::string_view::npos ? 0 : dot));
}

// logsumexp_swish_clamp's subtrahend: the block's own 'bias' of one element, beside the
// convolution.
const StoredTensor* find_subtrahend(const TensorFile& file, const StoredTensor& weight,
                                    const StoredTensor* bias) {
  const std::string convolution = parent_of(weight.name);
  if (convolution.empty()) return nullptr;
  const std::string block = parent_of(convolution);
  const StoredTensor* const found = find(file, block.empty() ? "bias" : block + ".bias");
  if (!found || found == bias || product(found->shape) != 1) return nullptr;
  return found;
}

void take_geometry(const StoredTensor& weight, const volup_geometry& given, LoadedModel* model) {
  volup_geometry& geometry = model->geometry;
  geometry = given;
  geometry.in_channels = weight.shape[0];
  geometry.out_channels = weight.shape[1];
  if (!module::multiply_into(&geometry.out_channels, geometry.groups)) geometry.out_channels = 0;
  for (size_t i = 0; i < 3; ++i) geometry.kernel[i] = weight.shape[2 + i];
  if (product(weight.shape) < 1 || geometry.out_channels < 1 ||
      geometry.in_channels % geometry.groups != 0) {
    refuse_unsupported(
        "shape of " + described(weight) + ": need [in, out / groups, D, H, W] of 1 " +
        "or more each, in a multiple of groups, which are " + to_text(geometry.groups));
  }
}

void take_bias(const StoredTensor& weight, const StoredTensor* bias, LoadedModel* model) {
  const int64_t channels = model->geometry.out_channels;
  if (!bias) {
    model->note("no bias: the file has no tensor beside " + quoted(weight.name) +
                " with 'bias' for 'weight'");
    return;
  }
  if (bias->shape != std::vector<int64_t>{channels}) {
    refuse_unsupported("shape of " + described(*bias) + ": need [" + to_text(channels) +
                       "], the output channels that " + described(weight) + " has with groups " +
                       to_text(model->geometry.groups));
  }
  model->bias = floats_of(*bias);
  model->has_bias = true;
  model->bias_name = bias->name;
}

void take_subtrahend(const StoredTensor* subtrahend, LoadedModel* model) {
  if (!subtrahend) {
    model->note("subtract is " + to_text(model->epilogue.subtract) +
                ": the file has no 'bias' of one element beside the convolution");
    return;
  }
  const float value = floats_of(*subtrahend)[0];
  const float given = model->epilogue.subtract;
  if (given != 0 && given != value) {
    refuse_unsupported("subtract: got " + to_text(value) + " from " + described(*subtrahend) +
                       ", need " + to_text(given) + " as the options say");
  }
  model->epilogue.subtract = value;
  model->note("subtract is the file's " + quoted(subtrahend->name));
}

}  // namespace

LoadedModel choose_block(const TensorFile& file, const volup_load_options& options) {
  const std::string submodule = options.submodule ? options.submodule : "";
  if (select(file, may_be_weight).empty()) refuse_without_weight(file, submodule);
  // With neither, all candidates are listed: the user has yet to choose.
  if (submodule.empty()) need_the_rest(file, nullptr, options);
  const StoredTensor& weight = choose_weight(file, submodule);
  need_the_rest(file, &weight, options);

  LoadedModel model;
  model.kind = file.kind;
  model.producer = file.producer;
  model.weight_dtype = weight.dtype;
  model.weight_name = weight.name;
  model.epilogue = *options.epilogue;
  for (const std::string& note : file.notes) model.note(note);

  const std::string stem = weight.name.substr(0, weight.name.size() - kWeight.size());
  const StoredTensor* const bias = find(file, stem + "bias");
  const bool subtracts = model.epilogue.kind == VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP;
  const StoredTensor* const subtrahend = subtracts ? find_subtrahend(file, weight, bias) : nullptr;
  take_geometry(weight, *options.geometry, &model);
  take_bias(weight, bias, &model);
  if (subtracts) take_subtrahend(subtrahend, &model);
  model.weight = floats_of(weight);

  for (const StoredTensor& tensor : file.tensors) {
    if (&tensor != &weight && &tensor != bias && &tensor != subtrahend) {
      model.unused.push_back(tensor.name);
    }
  }
  std::sort(model.unused.begin(), model.unused.end());
  return model;
}

}  // namespace volup::checkpoint
