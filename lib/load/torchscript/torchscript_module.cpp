// SPDX-License-Identifier: Apache-2.0
//
// The TorchScript loader module's boundary and the order of its work: check the archive, let
// libtorch load it, follow its graph, match it, take the weights. libtorch only loads: it computes
// nothing but the conversion of weights to float32.
#include <c10/util/Exception.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/version.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "load/formula/epilogue_match.h"
#include "load/module_support.h"
#include "load/torchscript/archive_check.h"
#include "load/torchscript/graph_reader.h"
#include "load/torchscript/submodule.h"
#include "load/torchscript/tensor_access.h"

namespace volup::torchscript {
namespace {

using formula::EpilogueMatch;
using module::LoadedModel;
using module::refuse_unreadable;
using module::refuse_unsupported;
using module::to_text;

// The bytes where they are.
class MemoryAdapter : public caffe2::serialize::ReadAdapterInterface {
 public:
  MemoryAdapter(const void* data, size_t size)
      : data_(static_cast<const char*>(data)), size_(size) {}
  size_t size() const override { return size_; }
  size_t read(uint64_t position, void* buffer, size_t count, const char*) const override {
    if (position >= size_) return 0;
    const size_t taken = std::min<size_t>(count, size_ - static_cast<size_t>(position));
    std::memcpy(buffer, data_ + position, taken);
    return taken;
  }

 private:
  const char* data_;
  size_t size_;
};

// libtorch's warnings go nowhere: a library does not print.
#if TORCH_VERSION_MAJOR < 2
namespace warnings = c10::Warning;
struct SilentWarnings : c10::WarningHandler {
  void process(const c10::SourceLocation&, const std::string&, bool) override {}
};
#else
namespace warnings = c10::WarningUtils;
struct SilentWarnings : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};
#endif

std::string first_line(std::string text) {
  text.erase(0, std::min(text.find_first_not_of("\n "), text.size()));
  text.resize(std::min(text.find('\n'), text.size()));
  text.resize(std::min<size_t>(text.size(), 300));
  return text;
}

// Runs body; what libtorch throws becomes a refusal that begins with what.
template <typename Body>
auto with_libtorch(volup_status status, const std::string& what, const Body& body) {
  try {
    return body();
  } catch (const module::Refusal&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::Error& error) {
    throw module::Refusal(status, what + first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw module::Refusal(status, what + first_line(error.what()));
  }
}

torch::jit::Module load_module(const void* data, size_t size) {
  const std::string library = "libtorch " TORCH_VERSION;
  try {
    return with_libtorch(VOLUP_STATUS_UNREADABLE, library + " cannot load the archive: ", [&] {
      return torch::jit::load(std::make_shared<MemoryAdapter>(data, size), c10::Device(c10::kCPU));
    });
  } catch (const module::Refusal& refusal) {
    // A sound file may still be of another time or need operators of its own.
    const std::string text = refusal.what();
    const bool is_foreign = text.find("nknown builtin op") != std::string::npos ||
                            text.find("file with version") != std::string::npos;
    if (is_foreign) refuse_unsupported(text);
    throw;
  }
}

struct Reading {
  GraphFacts facts;
  EpilogueMatch match;
};

Reading read_and_match(const torch::jit::Module& module, bool optional_given) {
  return with_libtorch(VOLUP_STATUS_UNSUPPORTED, "libtorch cannot give the graph: ", [&] {
    ExpressionPool pool;
    Reading reading;
    reading.facts = read_graph(module, optional_given, &pool);
    reading.match = formula::match_epilogue(reading.facts.result);
    return reading;
  });
}

bool has_optional_argument(const torch::jit::Module& module) {
  const auto method = module.find_method("forward");
  if (!method) return false;
  const auto& arguments = method->function().getSchema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
    return argument.type()->kind() == c10::TypeKind::OptionalType;
  });
}

// Optional tensors are left out first, as a plain call of forward leaves them.
Reading read_either_way(const torch::jit::Module& module) {
  if (!has_optional_argument(module)) return read_and_match(module, true);
  try {
    return read_and_match(module, false);
  } catch (const module::Refusal&) {
    return read_and_match(module, true);
  }
}

const char* name_of(int32_t kind) {
  switch (kind) {
    case VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP:
      return "logsumexp_swish_clamp";
    case VOLUP_EPILOGUE_SOFTMAX_SIGMOID:
      return "softmax_sigmoid";
    default:
      return "add_hardswish";
  }
}

// The whole module, or the submodule that the options name.
Reading read_block(const torch::jit::Module& root, const char* submodule) {
  if (submodule) {
    const torch::jit::Module part = with_libtorch(
        VOLUP_STATUS_UNREADABLE,
        "libtorch cannot give the submodules: ", [&] { return find_submodule(root, submodule); });
    try {
      return read_either_way(part);
    } catch (const module::Refusal& refusal) {
      throw module::Refusal(refusal.status(),
                            "submodule " + module::quoted(submodule) + ": " + refusal.what());
    }
  }
  try {
    return read_either_way(root);
  } catch (const module::Refusal& refusal) {
    if (refusal.status() != VOLUP_STATUS_UNSUPPORTED) throw;
    const auto kind_of = [](const torch::jit::Module& part) -> std::optional<std::string> {
      try {
        return name_of(read_either_way(part).match.epilogue.kind);
      } catch (const module::Refusal&) {
        return std::nullopt;
      }
    };
    const std::string within = with_libtorch(
        VOLUP_STATUS_UNREADABLE,
        "libtorch cannot give the submodules: ", [&] { return blocks_within(root, kind_of); });
    throw module::Refusal(refusal.status(), refusal.what() + within);
  }
}

// Every argument must be one that the formula takes: a caller passes no others.
void check_arguments(const Reading& reading, LoadedModel* model) {
  const EpilogueMatch& match = reading.match;
  const auto& names = reading.facts.arguments;
  for (size_t i = 0; i < names.size(); ++i) {
    if (static_cast<int>(i) != match.x && static_cast<int>(i) != match.add) {
      refuse_unsupported("arguments of forward: got the tensor " + module::quoted(names[i]) +
                         ", which the result does not use, need " +
                         (match.add < 0 ? "x alone" : "x and the added tensor"));
    }
  }
  if (match.add >= 0 && match.add < match.x) {
    model->note("forward takes the added tensor " +
                module::quoted(names[static_cast<size_t>(match.add)]) +
                " first; volup takes x first");
  }
}

std::string axes(const int64_t (&values)[3]) {
  return module::list_text(std::vector<int64_t>(values, values + 3));
}

void check_geometry(const volup_geometry& g) {
  bool sound = g.groups >= 1 && g.in_channels >= 1 && g.out_channels >= 1;
  sound = sound && g.in_channels % g.groups == 0;
  for (int i = 0; i < 3; ++i) {
    sound = sound && g.kernel[i] >= 1 && g.stride[i] >= 1 && g.dilation[i] >= 1 &&
            g.padding_begin[i] >= 0 && g.output_padding[i] >= 0 &&
            g.output_padding[i] < std::max(g.stride[i], g.dilation[i]);
  }
  if (sound) return;
  refuse_unsupported("geometry: got channels " + to_text(g.in_channels) + " to " +
                     to_text(g.out_channels) + ", groups " + to_text(g.groups) + ", kernel " +
                     axes(g.kernel) + ", stride " + axes(g.stride) + ", padding " +
                     axes(g.padding_begin) + ", output_padding " + axes(g.output_padding) +
                     ", dilation " + axes(g.dilation) +
                     ", need sizes of 1 or more, paddings of 0 or more, groups that divide the "
                     "channels and output_padding below max(stride, dilation)");
}

void take_weights(const Convolution& convolution, LoadedModel* model) {
  model->geometry = convolution.geometry;
  check_geometry(model->geometry);
  model->weight_dtype = type_name(convolution.weight);
  model->weight = floats_of(convolution.weight, "weight");
  if (!convolution.has_bias) return;
  const at::Tensor& bias = convolution.bias;
  if (bias.dim() != 1 || bias.size(0) != model->geometry.out_channels) {
    refuse_unsupported("shape of bias: got " + module::list_text(bias.sizes()) + ", need [" +
                       to_text(model->geometry.out_channels) + "]");
  }
  model->bias = floats_of(bias, "bias");
  model->has_bias = true;
}

// The weight's and the bias' names, and those of the parameters and buffers that the result does
// not depend on: of the whole file.
void take_names(const torch::jit::Module& module, const Reading& reading, LoadedModel* model) {
  std::vector<at::Tensor> used = reading.facts.used;
  const Convolution& convolution =
      reading.facts.convolutions[static_cast<size_t>(reading.match.convolution)];
  used.push_back(convolution.weight);
  if (convolution.has_bias) used.push_back(convolution.bias);
  for (const auto& attribute : module.named_attributes(/*recurse=*/true)) {
    if (!attribute.value.isTensor()) continue;
    const at::Tensor& tensor = attribute.value.toTensor();
    if (convolution.weight.is_same(tensor)) model->weight_name = attribute.name;
    if (convolution.has_bias && convolution.bias.is_same(tensor)) {
      model->bias_name = attribute.name;
    }
    const bool is_used = std::any_of(used.begin(), used.end(), [&tensor](const at::Tensor& each) {
      return each.is_same(tensor);
    });
    if (!is_used) model->unused.push_back(attribute.name);
  }
  std::sort(model->unused.begin(), model->unused.end());
}

LoadedModel load_model(const void* data, size_t size, const volup_load_options& options) {
  const ArchiveFacts archive =
      check_archive(data, size, (options.flags & VOLUP_LOAD_IGNORE_CRC) != 0);
  SilentWarnings silent;
  const warnings::WarningHandlerGuard guard(&silent);
  const torch::jit::Module module = load_module(data, size);
  const Reading reading = read_block(module, options.submodule);

  LoadedModel model;
  model.kind = "torchscript";
  model.producer = archive.producer;
  if ((options.flags & VOLUP_LOAD_IGNORE_CRC) != 0) {
    model.note("checksums of the file were not checked");
  }
  if (options.submodule)
    model.note("submodule " + module::quoted(options.submodule) + " of the file");
  model.epilogue = reading.match.epilogue;
  for (const std::string& note : reading.match.notes) model.note(note);
  for (const std::string& note : reading.facts.notes) model.note(note);
  check_arguments(reading, &model);
  with_libtorch(VOLUP_STATUS_UNREADABLE, "libtorch cannot read the weights: ", [&] {
    take_weights(reading.facts.convolutions[static_cast<size_t>(reading.match.convolution)],
                 &model);
    take_names(module, reading, &model);
  });
  return model;
}

int32_t load(const volup_module_source* source, const volup_load_options* options,
             volup_module_model* out, volup_module_text* error) {
  return module::guarded(
      error, [&] { *out = module::to_abi(load_model(source->data, source->size, *options)); });
}

}  // namespace
}  // namespace volup::torchscript

extern "C" __attribute__((visibility("default"))) int32_t volup_module_open_v2(
    volup_module* module) {
  return volup::module::guarded(nullptr, [&] {
    module->load = volup::torchscript::load;
    module->save = nullptr;
    module->release = volup::module::free_model;
    module->free_text = volup::module::free_text;
    module->library = "libtorch " TORCH_VERSION;
  });
}
