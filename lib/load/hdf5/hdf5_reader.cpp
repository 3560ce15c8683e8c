// SPDX-License-Identifier: Apache-2.0
//
// Reads a model in volup's HDF5 schema (hdf5_schema.h) from memory. All faults are gathered before
// the file is refused, so whoever writes such a file by hand mends it in one go.
#include "load/hdf5/hdf5_reader.h"

#include <hdf5.h>

#include <algorithm>
#include <cmath>

#include "load/hdf5/hdf5_access.h"
#include "load/hdf5/hdf5_schema.h"

namespace volup::hdf5 {
namespace {

using module::LoadedModel;
using module::quoted;
using module::refuse_unsupported;
using module::to_text;

const ModelType* find_type(const std::string& name) {
  for (const ModelType& type : kModelTypes) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

const ModelType* read_header(const Place& root, LoadedModel* model, Faults* faults) {
  if (const auto format = read_string(root, kFormat, faults); format && *format != kFormatName) {
    faults->add("attribute format", quoted(*format), quoted(kFormatName), root.path);
  }
  if (const auto version = read_integers(root, kVersion, 1, faults)) {
    const int64_t got = (*version)[0];
    if (got > kFormatVersion) {
      faults->add("attribute format_version", to_text(got) + ", newer than this volup reads",
                  "at most " + to_text(kFormatVersion), root.path);
    } else if (got < 1) {
      faults->add("attribute format_version", to_text(got), "1 or more", root.path);
    }
  }
  if (has_attribute(root, kProducer)) {
    model->producer = read_string(root, kProducer, faults).value_or("");
  }
  const auto name = read_string(root, kType, faults);
  if (!name) return nullptr;
  const ModelType* const type = find_type(*name);
  if (!type) {
    std::string known;
    for (const ModelType& each : kModelTypes)
      known += (known.empty() ? "" : ", ") + std::string(each.name);
    faults->add("attribute type", quoted(*name), "one of " + known, root.path);
  }
  return type;
}

Handle open_group(const Place& root, const char* name, bool required, Faults* faults) {
  const size_t before = faults->list.size();
  Handle group = open_object(root, name, H5I_GROUP, faults);
  if (!group && required && faults->list.size() == before) {
    faults->add(std::string("group ") + name, "nothing", "a group", root.path);
  }
  return group;
}

// True where every field was read and passes the rules that need no input size.
bool read_geometry(const Place& root, volup_geometry* geometry, Faults* faults) {
  const size_t before = faults->list.size();
  const Handle group = open_group(root, kGeometry, true, faults);
  if (!group) return false;
  const Place place{group.get(), "/geometry"};
  for (const CountField& field : kCountFields) {
    const auto values = read_integers(place, field.name, 1, faults);
    if (!values) continue;
    geometry->*field.field = (*values)[0];
    if ((*values)[0] < field.least) {
      faults->add(std::string("attribute ") + field.name, to_text((*values)[0]),
                  to_text(field.least) + " or more", place.path);
    }
  }
  for (const AxesField& field : kAxesFields) {
    const auto values = read_integers(place, field.name, 3, faults);
    if (!values) continue;
    std::copy(values->begin(), values->end(), geometry->*field.field);
    if (*std::min_element(values->begin(), values->end()) < field.least) {
      faults->add(std::string("attribute ") + field.name, module::list_text(*values),
                  to_text(field.least) + " or more on each axis", place.path);
    }
  }
  if (faults->list.size() > before) return false;

  if (geometry->in_channels % geometry->groups != 0 ||
      geometry->out_channels % geometry->groups != 0) {
    faults->add("attribute groups", to_text(geometry->groups),
                "a divisor of in_channels " + to_text(geometry->in_channels) +
                    " and of out_channels " + to_text(geometry->out_channels),
                place.path);
  }
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t limit = std::max(geometry->stride[axis], geometry->dilation[axis]);
    if (geometry->output_padding[axis] >= limit) {
      faults->add("attribute output_padding on axis " + std::string(1, "DHW"[axis]),
                  to_text(geometry->output_padding[axis]),
                  "less than max(stride, dilation) = " + to_text(limit), place.path);
    }
  }
  return faults->list.size() == before;
}

// The weight's shape by the geometry; empty, with a fault, where its size overflows.
std::vector<int64_t> weight_shape(const volup_geometry& geometry, Faults* faults) {
  const std::vector<int64_t> shape = {geometry.in_channels, geometry.out_channels / geometry.groups,
                                      geometry.kernel[0], geometry.kernel[1], geometry.kernel[2]};
  // The factor 8 leaves room for bytes of the widest type.
  int64_t bytes = 8;
  bool fits = true;
  for (const int64_t size : shape) fits = fits && module::multiply_into(&bytes, size);
  if (fits) return shape;
  faults->add("weight size", module::list_text(shape), "a size below 2^63 bytes", "/geometry");
  return {};
}

void read_epilogue(const Place& root, const ModelType& type, volup_epilogue* epilogue,
                   Faults* faults) {
  epilogue->kind = type.kind;
  epilogue->divisor = 1;
  if (type.constant_count == 0) return;
  const Handle group = open_group(root, kEpilogue, true, faults);
  if (!group) return;
  const Place place{group.get(), "/epilogue"};
  const size_t before = faults->list.size();
  for (int i = 0; i < type.constant_count; ++i) {
    const ConstantField& constant = type.constants[i];
    const auto value = read_number(place, constant.name, faults);
    if (!value) continue;
    epilogue->*constant.field = static_cast<float>(*value);
    const bool overflows = std::isfinite(*value) && std::isinf(epilogue->*constant.field);
    if (std::isnan(*value) || overflows) {
      faults->add(std::string("attribute ") + constant.name, to_text(*value),
                  "a number that float32 can hold", place.path);
    }
  }
  if (faults->list.size() > before) return;
  if (epilogue->divisor == 0 || !std::isfinite(epilogue->divisor)) {
    faults->add("attribute divisor", to_text(epilogue->divisor), "a finite number other than 0",
                place.path);
  }
  if (epilogue->clamp_min > epilogue->clamp_max) {
    faults->add("attribute clamp_min", to_text(epilogue->clamp_min),
                "at most clamp_max = " + to_text(epilogue->clamp_max), place.path);
  }
}

void read_weights(const Place& root, bool geometry_known, size_t file_size, LoadedModel* model,
                  Faults* faults) {
  const volup_geometry& geometry = model->geometry;
  std::vector<int64_t> shape;
  if (geometry_known) shape = weight_shape(geometry, faults);
  const size_t before = faults->list.size();
  if (const Handle dataset = open_object(root, kWeight, H5I_DATASET, faults)) {
    if (auto read = read_floats(dataset.get(), "/weight", shape, file_size, faults)) {
      model->weight = std::move(read->values);
      model->weight_dtype = read->dtype;
    }
  } else if (faults->list.size() == before) {
    faults->add("dataset weight", "nothing", shape.empty() ? "a dataset" : module::list_text(shape),
                root.path);
  }
  if (const Handle dataset = open_object(root, kBias, H5I_DATASET, faults)) {
    std::vector<int64_t> bias_shape;
    if (geometry_known && !shape.empty()) bias_shape = {geometry.out_channels};
    if (auto read = read_floats(dataset.get(), "/bias", bias_shape, file_size, faults)) {
      model->bias = std::move(read->values);
      model->has_bias = true;
    }
  }
}

void read_origin(const Place& root, LoadedModel* model, Faults* faults) {
  const Handle group = open_group(root, kOrigin, false, faults);
  if (!group) return;
  const Place place{group.get(), "/origin"};
  std::string* const fields[] = {&model->origin_kind, &model->origin_producer,
                                 &model->origin_sha256};
  for (int i = 0; i < 3; ++i) {
    if (has_attribute(place, kOriginFields[i])) {
      *fields[i] = read_string(place, kOriginFields[i], faults).value_or("");
    }
  }
}

void read_list(const Place& root, const char* name, size_t file_size,
               std::vector<std::string>* list, Faults* faults) {
  const Handle dataset = open_object(root, name, H5I_DATASET, faults);
  if (!dataset) return;
  const auto strings = read_string_list(dataset.get(), std::string("/") + name, file_size, faults);
  if (!strings) return;
  for (const std::string& text : *strings) {
    for (std::string& line : module::split_lines(text.c_str())) list->push_back(std::move(line));
  }
}

// Adds what the schema does not name, so that a misspelt dataset is seen.
void list_strangers(const Place& root, std::vector<std::string>* unused) {
  const auto add = [unused](std::string name) {
    std::replace_if(
        name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, '?');
    if (std::find(unused->begin(), unused->end(), name) == unused->end()) {
      unused->push_back(std::move(name));
    }
  };
  static constexpr const char* kLinks[] = {kGeometry, kEpilogue, kOrigin, kWeight,
                                           kBias,     kUnused,   kNotes};
  static constexpr const char* kAttributes[] = {kFormat, kVersion, kType, kProducer};
  const auto is_one_of = [](const std::string& name, const auto& known) {
    return std::any_of(std::begin(known), std::end(known),
                       [&name](const char* each) { return name == each; });
  };
  for (const std::string& name : link_names(root)) {
    if (!is_one_of(name, kLinks)) add("/" + name);
  }
  for (const std::string& name : attribute_names(root)) {
    if (!is_one_of(name, kAttributes)) add("/@" + name);
  }
}

}  // namespace

bool is_volup_model(const Place& root) {
  if (has_attribute(root, kFormat)) return true;
  const std::vector<std::string> links = link_names(root);
  return std::find(links.begin(), links.end(), kGeometry) != links.end();
}

LoadedModel read_volup_model(const Place& root, size_t file_size) {
  LoadedModel model;
  model.kind = "volup-hdf5";
  Faults faults;
  const ModelType* const type = read_header(root, &model, &faults);
  const bool geometry_known = read_geometry(root, &model.geometry, &faults);
  if (type) read_epilogue(root, *type, &model.epilogue, &faults);
  read_weights(root, geometry_known, file_size, &model, &faults);
  read_origin(root, &model, &faults);
  read_list(root, kUnused, file_size, &model.unused, &faults);
  read_list(root, kNotes, file_size, &model.notes, &faults);
  if (!faults.list.empty()) refuse_unsupported(module::join(faults.list, "; "));

  list_strangers(root, &model.unused);
  return model;
}

}  // namespace volup::hdf5
