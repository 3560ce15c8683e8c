// SPDX-License-Identifier: Apache-2.0
//
// Reads a Keras model's JSON; see keras_config.h.
#include "load/hdf5/keras_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "load/module_support.h"

namespace volup::hdf5 {
namespace {

using Json = nlohmann::json;
using module::to_text;

constexpr int kDepthLimit = 16;
constexpr int64_t kSizeLimit = int64_t{1} << 31;

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string text_of(const Json* value) {
  return value && value->is_string() ? value->get<std::string>() : "";
}

// Text for a message: short, whatever the file holds.
std::string shown(const Json* value) {
  if (!value) return "nothing";
  return module::quoted(value->dump(-1, ' ', false, Json::error_handler_t::replace), 60);
}

// One whole number, or one for each axis.
std::optional<std::vector<int64_t>> axes_of(const Json* value, int64_t least) {
  const auto number = [least](const Json& each) -> std::optional<int64_t> {
    if (!each.is_number_integer()) return std::nullopt;
    const auto got = each.get<int64_t>();
    const bool fits = got >= least && got < kSizeLimit;
    return fits ? std::optional<int64_t>(got) : std::nullopt;
  };
  if (!value) return std::nullopt;
  if (const auto one = number(*value)) return std::vector<int64_t>(3, *one);
  if (!value->is_array() || value->size() != 3) return std::nullopt;
  std::vector<int64_t> axes;
  for (const Json& each : *value) {
    if (const auto one = number(each)) axes.push_back(*one);
  }
  return axes.size() == 3 ? std::optional<std::vector<int64_t>>(axes) : std::nullopt;
}

class LayerConfig {
 public:
  LayerConfig(const Json& config, KerasConvolution* out) : config_(config), out_(*out) {}

  void read() {
    out_.name = text_of(member(config_, "name"));
    read_layout();
    read_geometry();
    read_rest();
  }

 private:
  void fault(const char* what, const Json* got, const std::string& need) {
    out_.faults.push_back(std::string(what) + ": got " + shown(got) + ", need " + need +
                          " (layer " + module::quoted(out_.name) + ")");
  }

  void read_layout() {
    const Json* const format = member(config_, "data_format");
    const std::string text = text_of(format);
    out_.channels_last = text != "channels_first";
    if (text != "channels_first" && text != "channels_last") {
      fault("data_format", format, "channels_last or channels_first");
    }
  }

  std::vector<int64_t> axes(const char* name, int64_t least, bool required) {
    const Json* const value = member(config_, name);
    if (!value && !required) return std::vector<int64_t>(3, least);
    const auto got = axes_of(value, least);
    if (got) return *got;
    fault(name, value, "one whole number or three, " + to_text(least) + " or more");
    return std::vector<int64_t>(3, std::max<int64_t>(least, 1));
  }

  void read_geometry() {
    volup_geometry& g = out_.geometry;
    const std::vector<int64_t> kernel = axes("kernel_size", 1, true);
    const std::vector<int64_t> stride = axes("strides", 1, true);
    const std::vector<int64_t> dilation = axes("dilation_rate", 1, false);
    const Json* const padding = member(config_, "padding");
    const std::string kind = text_of(padding);
    if (kind != "same" && kind != "valid") fault("padding", padding, "same or valid");
    const bool has_output_padding = member(config_, "output_padding");
    const std::vector<int64_t> output_padding = axes("output_padding", 0, false);
    const Json* const filters = member(config_, "filters");
    if (filters && filters->is_number_integer() && filters->get<int64_t>() > 0) {
      g.out_channels = filters->get<int64_t>();
    } else {
      fault("filters", filters, "a whole number, 1 or more");
    }
    for (size_t i = 0; i < 3; ++i) {
      const KerasCrop crop =
          keras_crop(kind == "same", kernel[i], stride[i], dilation[i],
                     has_output_padding ? std::optional(output_padding[i]) : std::nullopt);
      g.kernel[i] = kernel[i];
      g.stride[i] = stride[i];
      g.dilation[i] = dilation[i];
      g.padding_begin[i] = crop.begin;
      g.padding_end[i] = crop.end;
      g.output_padding[i] = crop.output_padding;
    }
    g.groups = 1;
    const Json* const groups = member(config_, "groups");
    if (groups && *groups != 1) fault("groups", groups, "1");
  }

  void read_rest() {
    const Json* const use_bias = member(config_, "use_bias");
    if (use_bias && use_bias->is_boolean()) {
      out_.use_bias = use_bias->get<bool>();
    } else {
      fault("use_bias", use_bias, "true or false");
    }
    const Json* const activation = member(config_, "activation");
    // Keras 3 may write a function as an object that holds its name.
    const bool is_linear = !activation || text_of(activation) == "linear" ||
                           text_of(member(*activation, "config")) == "linear";
    if (!is_linear) fault("activation", activation, "linear");
  }

  const Json& config_;
  KerasConvolution& out_;
};

// Layers that change nothing in inference.
bool computes_nothing(const std::string& class_name) {
  static constexpr const char* kNames[] = {
      "InputLayer",    "Dropout",      "SpatialDropout3D",       "GaussianDropout",
      "GaussianNoise", "AlphaDropout", "ActivityRegularization", "Identity"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](const char* name) { return class_name == name; });
}

bool is_softmax(const std::string& class_name, const Json& config, bool channels_last) {
  if (class_name == "Activation") {
    return text_of(member(config, "activation")) == "softmax" && channels_last;
  }
  if (class_name != "Softmax") return false;
  const Json* axis = member(config, "axis");
  if (axis && axis->is_array() && axis->size() == 1) axis = &(*axis)[0];
  if (!axis) return channels_last;
  return channels_last ? *axis == -1 || *axis == 4 : *axis == 1 || *axis == -4;
}

bool is_sigmoid(const std::string& class_name, const Json& config) {
  return class_name == "Activation" && text_of(member(config, "activation")) == "sigmoid";
}

// Every string in a value, which is how a layer names those it takes its input from.
void collect_strings(const Json& value, int depth, std::vector<std::string>* out) {
  if (depth > kDepthLimit) return;
  if (value.is_string()) out->push_back(value.get<std::string>());
  if (value.is_structured()) {
    for (const auto& item : value.items()) collect_strings(item.value(), depth + 1, out);
  }
}

// Whether each layer takes its input from the one before it alone, and the last gives the output.
bool is_chain(const Json& layers, const Json& config) {
  std::vector<std::string> names;
  for (const Json& layer : layers) {
    const Json* const own = member(layer, "config");
    names.push_back(own ? text_of(member(*own, "name")) : "");
  }
  const auto only_names = [&](const Json* value, const std::string& wanted) {
    std::vector<std::string> strings;
    if (value) collect_strings(*value, 0, &strings);
    bool found = wanted.empty();
    for (const std::string& text : strings) {
      found |= text == wanted;
      if (text != wanted && std::find(names.begin(), names.end(), text) != names.end())
        return false;
    }
    return found;
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!only_names(member(layers[i], "inbound_nodes"), i == 0 ? "" : names[i - 1])) return false;
  }
  return !names.empty() && only_names(member(config, "output_layers"), names.back());
}

class ModelConfig {
 public:
  // True unless the nesting is absurd.
  bool read(const std::string& class_name, const Json& config, int depth, KerasModel* model) {
    const Json* const layers =
        config.is_array() ? &config : member(config, "layers");  // Keras 1's Sequential is a list
    if (!layers || !layers->is_array()) return true;
    if (depth > kDepthLimit) return false;
    const bool in_order = depth == 0 && (class_name == "Sequential" || is_chain(*layers, config));
    size_t convolution = layers->size();
    for (size_t i = 0; i < layers->size(); ++i) {
      const Json& layer = (*layers)[i];
      const Json* const own = member(layer, "config");
      const std::string kind = text_of(member(layer, "class_name"));
      if (!own || computes_nothing(kind)) continue;
      if (kind == "Conv3DTranspose") {
        convolution = i;
        model->convolutions.emplace_back();
        LayerConfig(*own, &model->convolutions.back()).read();
      } else if (member(*own, "layers") || own->is_array()) {
        if (!read(kind, *own, depth + 1, model)) return false;
      } else {
        model->others.push_back({text_of(member(*own, "name")), kind});
      }
    }
    if (in_order && model->convolutions.size() == 1) match_epilogue(*layers, convolution, model);
    return true;
  }

 private:
  static void match_epilogue(const Json& layers, size_t convolution, KerasModel* model) {
    std::vector<const Json*> after;
    for (size_t i = convolution + 1; i < layers.size(); ++i) {
      if (!computes_nothing(text_of(member(layers[i], "class_name")))) after.push_back(&layers[i]);
    }
    if (after.size() != 2) return;
    KerasConvolution& found = model->convolutions[0];
    const auto kind = [&](size_t i) { return text_of(member(*after[i], "class_name")); };
    const auto own = [&](size_t i) -> const Json& { return *member(*after[i], "config"); };
    if (!member(*after[0], "config") || !member(*after[1], "config")) return;
    if (!is_softmax(kind(0), own(0), found.channels_last) || !is_sigmoid(kind(1), own(1))) return;
    found.softmax_sigmoid = true;
    for (size_t i = 0; i < 2; ++i) {
      found.epilogue_layers.push_back(text_of(member(own(i), "name")));
    }
  }
};

}  // namespace

KerasCrop keras_crop(bool same, int64_t kernel, int64_t stride, int64_t dilation,
                     std::optional<int64_t> output_padding) {
  // Keras names the output's size; TensorFlow then cuts what `same` padding of that size would have
  // put before and after, the odd one after. What it would have to add is output_padding.
  const int64_t reach = (kernel - 1) * dilation + 1;
  int64_t cut = 0;
  if (!output_padding) {
    cut = same ? reach - stride : std::min<int64_t>(reach - stride, 0);
  } else {
    cut = (same ? 2 * (reach / 2) : 0) - *output_padding;
  }
  if (cut < 0) return {0, 0, -cut};
  return {cut / 2, cut - cut / 2, 0};
}

std::optional<KerasModel> parse_keras_model(const std::string& json, std::string* fault) {
  const Json document = Json::parse(json, nullptr, false);
  const Json* const config = member(document, "config");
  if (!config) {
    *fault = "attribute model_config: got " + module::quoted(json, 60) +
             ", need a Keras model's JSON (/)";
    return std::nullopt;
  }
  KerasModel model;
  if (!ModelConfig().read(text_of(member(document, "class_name")), *config, 0, &model)) {
    *fault = "attribute model_config: got models inside each other beyond " + to_text(kDepthLimit) +
             ", need fewer (/)";
    return std::nullopt;
  }
  return model;
}

}  // namespace volup::hdf5
