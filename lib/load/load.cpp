// SPDX-License-Identifier: Apache-2.0
#include "load/load.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "abi_convert.h"
#include "load/file_content.h"
#include "load/file_kind.h"
#include "load/module.h"
#include "load/module_floats.h"

namespace volup {
namespace {

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

std::vector<std::string> lines_of(const char* text) {
  std::vector<std::string> lines;
  for (std::string_view rest = text == nullptr ? "" : text; !rest.empty();) {
    const size_t end = rest.find('\n');
    lines.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return lines;
}

// A module's answer, given back to the module with the last array that points into it.
class LoadedModel {
 public:
  LoadedModel(const volup_module& module, const volup_module_model& model)
      : module_(module), model_(model) {}
  ~LoadedModel() { module_.release(&model_); }
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;
  const volup_module_model& operator*() const { return model_; }

 private:
  const volup_module module_;
  volup_module_model model_;
};

Status take_error(const volup_module& module, int32_t code, volup_module_text* error) {
  const Status status(static_cast<volup_status>(code),
                      error->text == nullptr ? "the loader module gave no reason" : error->text);
  module.free_text(error);
  return status;
}

// LoadOptions as a module reads them; points into options.
struct AbiOptions {
  explicit AbiOptions(const LoadOptions& options) {
    whole.struct_size = sizeof(whole);
    whole.module_directory = text_or_null(options.module_directory);
    whole.submodule = text_or_null(options.submodule);
    if (options.ignore_crc) whole.flags |= VOLUP_LOAD_IGNORE_CRC;
    if (options.allow_nonfinite) whole.flags |= VOLUP_LOAD_ALLOW_NONFINITE;
    if (options.epilogue) {
      epilogue = epilogue_to_abi(*options.epilogue);
      whole.epilogue = &epilogue;
    }
    if (options.geometry) {
      geometry = geometry_to_abi(*options.geometry);
      whole.geometry = &geometry;
    }
  }
  AbiOptions(const AbiOptions&) = delete;
  AbiOptions& operator=(const AbiOptions&) = delete;
  static const char* text_or_null(const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
  }

  volup_epilogue epilogue{};
  volup_geometry geometry{};
  volup_load_options whole{};
};

// What the options say and the file says otherwise.
Status check_agreement(const ConvTranspose3d& got, const ConvTranspose3d& need) {
  std::string faults;
  const auto compare = [&faults](const char* name, const auto& file, const auto& options) {
    if (file != options) {
      faults += cat(faults.empty() ? "" : "; ", name, ": got ", file, " from the file, need ",
                    options, " as the options say");
    }
  };
  Axes kernel = need.kernel;
  for (size_t i = 0; i < 3; ++i) kernel[i] = kernel[i] == 0 ? got.kernel[i] : kernel[i];
  const auto either = [](int64_t wanted, int64_t file) { return wanted == 0 ? file : wanted; };
  compare("in_channels", got.in_channels, either(need.in_channels, got.in_channels));
  compare("out_channels", got.out_channels, either(need.out_channels, got.out_channels));
  compare("groups", got.groups, need.groups);
  compare("kernel", got.kernel, kernel);
  compare("stride", got.stride, need.stride);
  compare("padding_begin", got.padding_begin, need.padding_begin);
  compare("padding_end", got.padding_end, need.padding_end);
  compare("output_padding", got.output_padding, need.output_padding);
  compare("dilation", got.dilation, need.dilation);
  return faults.empty() ? Status() : unsupported("geometry: ", faults);
}

Status check_agreement(const Epilogue& got, const Epilogue& given) {
  if (got.kind != given.kind) {
    return unsupported("type: got ", name_of(got.kind), " from the file, need ",
                       name_of(given.kind), " as the options say");
  }
  const Epilogue file = normalized(got), need = normalized(given);
  std::string faults;
  const auto compare = [&faults](const char* name, float in_file, float in_options) {
    if (in_file != in_options) {
      faults += cat(faults.empty() ? "" : "; ", name, ": got ", in_file, " from the file, need ",
                    in_options, " as the options say");
    }
  };
  compare("shift", file.shift, need.shift);
  compare("divisor", file.divisor, need.divisor);
  compare("subtract", file.subtract, need.subtract == 0 ? file.subtract : need.subtract);
  compare("clamp_min", file.clamp_min, need.clamp_min);
  compare("clamp_max", file.clamp_max, need.clamp_max);
  return faults.empty() ? Status() : unsupported("epilogue constants: ", faults);
}

// The one place where weights that are not finite are refused, or taken with a note.
Status check_finite(const volup_module_model& m, bool allowed, std::vector<std::string>* notes) {
  std::string faults;
  const auto check = [&](const char* what, const char* name, const float* values, int64_t size) {
    if (values == nullptr || module::all_finite(values, static_cast<size_t>(size))) return;
    int64_t nan = 0, infinite = 0;
    for (int64_t i = 0; i < size; ++i) {
      nan += std::isnan(values[i]);
      infinite += std::isinf(values[i]);
    }
    const std::string counted = cat(nan, " NaN and ", infinite, " infinite of ", size, " values");
    faults += cat(faults.empty() ? "" : "; ", name == nullptr ? what : name, ": got ", counted);
    // A file that volup wrote brings the note with it.
    std::string note = cat(what, " holds ", counted);
    if (std::find(notes->begin(), notes->end(), note) == notes->end()) {
      notes->push_back(std::move(note));
    }
  };
  check("weight", m.weight_name, m.weight, m.weight_count);
  check("bias", m.bias_name, m.bias, m.bias_count);
  if (faults.empty() || allowed) return {};
  return unsupported(
      faults,
      ", need finite ones (allow_nonfinite, volup: --allow-nonfinite, takes them as they are)");
}

Result<std::shared_ptr<const Model>> load_bytes(std::span<const std::byte> bytes,
                                                const std::string& name,
                                                const LoadOptions& options) {
  VOLUP_ASSIGN_OR_RETURN(const FileKind kind, detect_file_kind(bytes));
  VOLUP_ASSIGN_OR_RETURN(const volup_module module, open_module(kind, options.module_directory));
  Digest digest(bytes);
  const volup_module_source source = {bytes.data(), bytes.size(), name.c_str()};
  volup_module_model filled = {};
  volup_module_text error = {};
  const AbiOptions abi(options);
  if (const int32_t code = module.load(&source, &abi.whole, &filled, &error);
      code != VOLUP_STATUS_OK) {
    return take_error(module, code, &error);
  }
  const auto loaded = std::make_shared<LoadedModel>(module, filled);
  const volup_module_model& m = **loaded;
  const ConvTranspose3d geometry = geometry_from_abi(m.geometry);
  const Epilogue epilogue = epilogue_from_abi(m.epilogue);
  if (options.geometry) VOLUP_RETURN_IF_ERROR(check_agreement(geometry, *options.geometry));
  if (options.epilogue) VOLUP_RETURN_IF_ERROR(check_agreement(epilogue, *options.epilogue));
  ModelSource from;
  from.notes = lines_of(m.notes);
  VOLUP_RETURN_IF_ERROR(check_finite(m, options.allow_nonfinite, &from.notes));
  from.kind = text_of(m.kind);
  from.path = name;
  from.bytes = static_cast<int64_t>(bytes.size());
  from.producer = text_of(m.producer);
  from.weight_dtype = text_of(m.weight_dtype);
  from.sha256 = digest.hex();
  from.library = text_of(module.library);
  from.origin_kind = text_of(m.origin_kind);
  from.origin_producer = text_of(m.origin_producer);
  from.origin_sha256 = text_of(m.origin_sha256);
  from.unused = lines_of(m.unused);
  const FloatArray bias = m.bias == nullptr ? nullptr : FloatArray(loaded, m.bias);
  auto model = Model::create(geometry, epilogue, FloatArray(loaded, m.weight), m.weight_count, bias,
                             m.bias_count, std::move(from));
  // What is wrong is the file, not the caller's arguments.
  if (!model.ok()) return unsupported(model.status().text());
  return model;
}

Status with_name(const Status& status, std::string_view name) {
  return status.ok() ? status : Status(status.code(), cat(name, ": ", status.text()));
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

}  // namespace

Result<std::shared_ptr<const Model>> load_model_file(const std::string& path,
                                                     const LoadOptions& options) {
  const auto content = read_file(path);
  if (!content.ok()) return with_name(content.status(), path);
  auto model = load_bytes(content->bytes(), path, options);
  if (!model.ok()) return with_name(model.status(), path);
  return model;
}

Result<std::shared_ptr<const Model>> load_model_memory(const void* data, size_t size,
                                                       const LoadOptions& options) {
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(data), size);
  auto model = load_bytes(bytes, "memory", options);
  if (!model.ok()) return with_name(model.status(), "memory");
  return model;
}

Status save_model_file(const Model& model, const std::string& path, const LoadOptions& options) {
  const auto module = open_module(hdf5_file_kind(), options.module_directory);
  if (!module.ok()) return with_name(module.status(), path);
  if (module->save == nullptr) {
    return unavailable(path, ": the HDF5 module ", module->library, " cannot write");
  }
  const ModelSource& from = model.source();
  // What was converted once keeps its first origin.
  const bool converted = !from.origin_kind.empty();
  std::string kind = "volup-hdf5";
  std::string producer =
      cat("volup ", VOLUP_VERSION_MAJOR, ".", VOLUP_VERSION_MINOR, ".", VOLUP_VERSION_PATCH);
  std::string dtype = from.weight_dtype;
  std::string origin_kind = converted ? from.origin_kind : from.kind;
  std::string origin_producer = converted ? from.origin_producer : from.producer;
  std::string origin_sha256 = converted ? from.origin_sha256 : from.sha256;
  std::string unused = joined(from.unused);
  std::string notes = joined(from.notes);
  const auto text = [](std::string& value) { return value.empty() ? nullptr : value.data(); };
  volup_module_model m = {};
  m.geometry = geometry_to_abi(model.geometry());
  m.epilogue = epilogue_to_abi(model.epilogue());
  m.weight = const_cast<float*>(model.weight());
  m.weight_count = model.geometry().weight_count();
  m.bias = const_cast<float*>(model.bias());
  m.bias_count = model.bias() == nullptr ? 0 : model.geometry().out_channels;
  m.kind = text(kind);
  m.producer = text(producer);
  m.weight_dtype = text(dtype);
  m.origin_kind = text(origin_kind);
  m.origin_producer = text(origin_producer);
  m.origin_sha256 = text(origin_sha256);
  m.unused = text(unused);
  m.notes = text(notes);
  volup_module_text error = {};
  const int32_t code = module->save(&m, path.c_str(), &error);
  return code == VOLUP_STATUS_OK ? Status() : with_name(take_error(*module, code, &error), path);
}

}  // namespace volup
