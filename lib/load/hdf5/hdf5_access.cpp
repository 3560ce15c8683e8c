// SPDX-License-Identifier: Apache-2.0
//
// Careful reading of HDF5 objects; see hdf5_access.h.
#include "load/hdf5/hdf5_access.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "load/module_support.h"

namespace volup::hdf5 {
namespace {

using module::list_text;
using module::quoted;
using module::refuse_unreadable;
using module::to_text;

constexpr size_t kNameLimit = 1000;
constexpr size_t kStringLimit = size_t{1} << 20;
constexpr int64_t kStringCountLimit = 100'000;
constexpr uint64_t kStringListLimit = uint64_t{1} << 26;
// deflate's best: 258 bytes for two bits, less its overhead.
constexpr uint64_t kDeflateRatio = 1032;

herr_t keep_innermost(unsigned, const H5E_error2_t* entry, void* out) {
  if (entry->desc && *entry->desc) *static_cast<std::string*>(out) = entry->desc;
  return 0;
}

// Elements of a dataspace; -1 for a null dataspace.
int64_t element_count(hid_t space) {
  if (H5Sget_simple_extent_type(space) == H5S_NULL) return -1;
  return static_cast<int64_t>(H5Sget_simple_extent_npoints(space));
}

std::string trimmed(std::string text, H5T_str_t padding) {
  text.resize(std::min(text.find('\0'), text.size()));
  if (padding == H5T_STR_SPACEPAD) {
    while (!text.empty() && text.back() == ' ') text.pop_back();
  }
  return text;
}

// Reads count strings of the given stored type through read(memory type, buffer).
template <typename Read>
std::vector<std::string> read_cells(hid_t type, hid_t space, int64_t count, const char* what,
                                    const Read& read) {
  std::vector<std::string> strings;
  const size_t number = static_cast<size_t>(count);
  if (H5Tis_variable_str(type) > 0) {
    Handle memory = need(H5Tcopy(H5T_C_S1), what);
    need_ok(H5Tset_size(memory.get(), H5T_VARIABLE), what);
    need_ok(H5Tset_cset(memory.get(), H5Tget_cset(type)), what);
    std::vector<char*> pointers(number, nullptr);
    const herr_t result = read(memory.get(), pointers.data());
    for (const char* pointer : pointers) strings.emplace_back(pointer ? pointer : "");
    H5Dvlen_reclaim(memory.get(), space, H5P_DEFAULT, pointers.data());
    need_ok(result, what);
    return strings;
  }
  const size_t size = H5Tget_size(type);
  std::vector<char> bytes(size * number);
  need_ok(read(type, bytes.data()), what);
  for (size_t i = 0; i < number; ++i) {
    strings.push_back(trimmed(std::string(bytes.data() + i * size, size), H5Tget_strpad(type)));
  }
  return strings;
}

struct Attribute {
  Handle id, type, space;
  int64_t count = 0;
};

// Opens an attribute of one of two type classes; empty with a fault otherwise.
std::optional<Attribute> open_attribute(const Place& place, const char* name, H5T_class_t wanted,
                                        H5T_class_t also, const std::string& needed,
                                        Faults* faults) {
  const std::string what = std::string("attribute ") + name;
  if (!has_attribute(place, name)) {
    faults->add(what, "nothing", needed, place.path);
    return std::nullopt;
  }
  Attribute attribute;
  attribute.id = need(H5Aopen(place.id, name, H5P_DEFAULT), name);
  attribute.type = need(H5Aget_type(attribute.id.get()), name);
  attribute.space = need(H5Aget_space(attribute.id.get()), name);
  attribute.count = element_count(attribute.space.get());
  const H5T_class_t type_class = H5Tget_class(attribute.type.get());
  if (type_class != wanted && type_class != also) {
    faults->add(what, describe_type(attribute.type.get()), needed, place.path);
    return std::nullopt;
  }
  return attribute;
}

// Name of a float type this module converts, or empty. Only the four layouts in use: HDF5 would
// convert any bit layout that a file invents.
std::string float_name(hid_t type) {
  size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
  if (H5Tget_class(type) != H5T_FLOAT ||
      H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0) {
    return "";
  }
  const struct {
    const char* name;
    size_t size, exponent_bits, mantissa_bits;
    size_t bias;
  } kKnown[] = {{"float16", 2, 5, 10, 15},
                {"bfloat16", 2, 8, 7, 127},
                {"float32", 4, 8, 23, 127},
                {"float64", 8, 11, 52, 1023}};
  const H5T_order_t order = H5Tget_order(type);
  for (const auto& known : kKnown) {
    if (H5Tget_size(type) == known.size && exponent_bits == known.exponent_bits &&
        mantissa_bits == known.mantissa_bits && mantissa == 0 && exponent == mantissa_bits &&
        sign == exponent + exponent_bits && H5Tget_ebias(type) == known.bias &&
        H5Tget_precision(type) == known.size * 8 && H5Tget_norm(type) == H5T_NORM_IMPLIED &&
        (order == H5T_ORDER_LE || order == H5T_ORDER_BE)) {
      return known.name;
    }
  }
  return "";
}

// A chunk is unpacked whole: it may pass the dataset's edge, but not by any amount. A missing one
// would read as zeros.
bool chunks_are_sound(hid_t dataset, const std::string& path, const std::vector<int64_t>& chunk,
                      uint64_t most_elements, Faults* faults) {
  const Handle space = need(H5Dget_space(dataset), path.c_str());
  const std::vector<int64_t> shape = shape_of(space.get());
  int64_t elements = 1, count = 1;
  bool fits = chunk.size() == shape.size();
  for (size_t i = 0; fits && i < chunk.size(); ++i) {
    fits = chunk[i] > 0 && module::multiply_into(&elements, chunk[i]) &&
           module::multiply_into(&count, (shape[i] - 1) / chunk[i] + 1);
  }
  if (!fits || static_cast<uint64_t>(elements) > most_elements) {
    faults->add("chunk", list_text(chunk) + " elements", "chunks that the file can hold", path);
    return false;
  }
  hsize_t stored = 0;
  need_ok(H5Dget_num_chunks(dataset, space.get(), &stored), path.c_str());
  if (stored != static_cast<hsize_t>(count)) {
    faults->add("chunks", to_text(static_cast<uint64_t>(stored)), to_text(count), path);
    return false;
  }
  return true;
}

// Refuses storage that reaches outside the file, runs plug-ins, or claims more than its bytes can
// hold. True if the data can be read.
bool storage_is_sound(hid_t dataset, const std::string& path, uint64_t bytes, size_t file_size,
                      Faults* faults) {
  Handle plist = need(H5Dget_create_plist(dataset), path.c_str());
  const H5D_layout_t layout = H5Pget_layout(plist.get());
  if (layout == H5D_VIRTUAL || H5Pget_external_count(plist.get()) > 0) {
    faults->add("storage", "data in other files", "data in this file", path);
    return false;
  }
  bool deflated = false;
  const int filters = H5Pget_nfilters(plist.get());
  for (int i = 0; i < filters; ++i) {
    size_t values = 0;
    unsigned flags = 0, config = 0;
    char name[64] = "";
    const H5Z_filter_t filter = H5Pget_filter2(plist.get(), static_cast<unsigned>(i), &flags,
                                               &values, nullptr, sizeof(name), name, &config);
    deflated |= filter == H5Z_FILTER_DEFLATE;
    if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE &&
        filter != H5Z_FILTER_FLETCHER32) {
      faults->add("filter", to_text(static_cast<int>(filter)) + " " + quoted(name),
                  "deflate, shuffle or fletcher32", path);
      return false;
    }
  }
  const uint64_t stored = H5Dget_storage_size(dataset);
  const uint64_t ratio = deflated ? kDeflateRatio : 1;
  if (stored > file_size || bytes / ratio > stored) {
    faults->add("storage", to_text(stored) + " bytes in a file of " + to_text(file_size),
                to_text(bytes) + " bytes of data", path);
    return false;
  }
  if (layout == H5D_CHUNKED) {
    hsize_t chunk[H5S_MAX_RANK];
    const int rank = H5Pget_chunk(plist.get(), H5S_MAX_RANK, chunk);
    std::vector<int64_t> chunk_shape(chunk, chunk + std::max(rank, 0));
    return chunks_are_sound(dataset, path, chunk_shape, file_size * ratio, faults);
  }
  return true;
}

}  // namespace

SilentErrors::SilentErrors() {
  H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

SilentErrors::~SilentErrors() {
  H5Eclear2(H5E_DEFAULT);
  H5Eset_auto2(H5E_DEFAULT, function_, data_);
}

std::string last_hdf5_error() {
  std::string innermost;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_innermost, &innermost);
  return innermost.empty() ? "no further word" : innermost;
}

void refuse_damaged(const char* what) {
  const std::string error = last_hdf5_error();
  const bool is_version = error.find("version number") != std::string::npos;
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  refuse_unreadable((is_version ? "HDF5 file that is damaged or newer than HDF5 " + to_text(major) +
                                      "." + to_text(minor) + "." + to_text(release) + " reads: "
                                : std::string("damaged or truncated HDF5 file: ")) +
                    error + " (" + what + ")");
}

Handle need(hid_t id, const char* what) {
  if (id < 0) refuse_damaged(what);
  return Handle(id);
}

void need_ok(herr_t result, const char* what) {
  if (result < 0) refuse_damaged(what);
}

std::string describe_type(hid_t type) {
  const std::string bits = to_text(H5Tget_size(type) * 8) + "-bit ";
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return bits + "integer";
    case H5T_FLOAT: {
      const std::string name = float_name(type);
      return name.empty() ? bits + "float of another layout" : name;
    }
    case H5T_STRING:
      return "string";
    case H5T_COMPOUND:
      return "compound";
    case H5T_ENUM:
      return "enumeration";
    case H5T_ARRAY:
      return "array";
    case H5T_VLEN:
      return "variable-length list";
    default:
      return "another type";
  }
}

std::vector<int64_t> shape_of(hid_t space) {
  const int rank = H5Sget_simple_extent_ndims(space);
  if (rank < 0 || rank > H5S_MAX_RANK) refuse_unreadable("damaged HDF5 file: a rank is not sound");
  std::vector<hsize_t> dims(static_cast<size_t>(rank));
  if (rank > 0) need_ok(H5Sget_simple_extent_dims(space, dims.data(), nullptr), "a dataspace");
  return std::vector<int64_t>(dims.begin(), dims.end());
}

bool has_attribute(const Place& place, const char* name) {
  const htri_t exists = H5Aexists(place.id, name);
  need_ok(exists, name);
  return exists > 0;
}

std::optional<std::string> read_string(const Place& place, const char* name, Faults* faults) {
  const auto attribute = open_attribute(place, name, H5T_STRING, H5T_STRING, "a string", faults);
  if (!attribute) return std::nullopt;
  const size_t size = H5Tget_size(attribute->type.get());
  if (attribute->count != 1 || size > kStringLimit) {
    faults->add(std::string("attribute ") + name,
                attribute->count == 1
                    ? "a string of " + to_text(size) + " bytes"
                    : to_text(std::max<int64_t>(attribute->count, 0)) + " strings",
                "one string", place.path);
    return std::nullopt;
  }
  const hid_t id = attribute->id.get();
  return read_cells(attribute->type.get(), attribute->space.get(), 1, name,
                    [id](hid_t type, void* out) { return H5Aread(id, type, out); })[0];
}

std::optional<std::vector<std::string>> read_strings(const Place& place, const char* name,
                                                     Faults* faults) {
  // A list of nothing has whatever type its writer's arrays have.
  if (has_attribute(place, name)) {
    const Handle id = need(H5Aopen(place.id, name, H5P_DEFAULT), name);
    const Handle space = need(H5Aget_space(id.get()), name);
    if (element_count(space.get()) <= 0) return std::vector<std::string>();
  }
  const auto attribute = open_attribute(place, name, H5T_STRING, H5T_STRING, "strings", faults);
  if (!attribute) return std::nullopt;
  const size_t size = H5Tget_size(attribute->type.get());
  if (attribute->count > kStringCountLimit || size > kStringLimit ||
      static_cast<uint64_t>(attribute->count) * size > kStringListLimit) {
    faults->add(std::string("attribute ") + name,
                to_text(attribute->count) + " strings of " + to_text(size) + " bytes",
                "at most " + to_text(kStringCountLimit) + ", " + to_text(kStringListLimit) +
                    " bytes in all",
                place.path);
    return std::nullopt;
  }
  const hid_t id = attribute->id.get();
  return read_cells(attribute->type.get(), attribute->space.get(), attribute->count, name,
                    [id](hid_t type, void* out) { return H5Aread(id, type, out); });
}

std::optional<std::vector<int64_t>> read_integers(const Place& place, const char* name,
                                                  size_t count, Faults* faults) {
  const std::string needed = count == 1 ? "an integer" : to_text(count) + " integers";
  const auto attribute = open_attribute(place, name, H5T_INTEGER, H5T_INTEGER, needed, faults);
  if (!attribute) return std::nullopt;
  if (attribute->count != static_cast<int64_t>(count)) {
    faults->add(std::string("attribute ") + name,
                to_text(std::max<int64_t>(attribute->count, 0)) + " values", needed, place.path);
    return std::nullopt;
  }
  std::vector<int64_t> values(count);
  need_ok(H5Aread(attribute->id.get(), H5T_NATIVE_INT64, values.data()), name);
  return values;
}

std::optional<double> read_number(const Place& place, const char* name, Faults* faults) {
  const auto attribute = open_attribute(place, name, H5T_FLOAT, H5T_INTEGER, "a number", faults);
  if (!attribute) return std::nullopt;
  const bool is_float = H5Tget_class(attribute->type.get()) == H5T_FLOAT;
  if (attribute->count != 1 || (is_float && float_name(attribute->type.get()).empty())) {
    faults->add(std::string("attribute ") + name,
                attribute->count == 1 ? describe_type(attribute->type.get())
                                      : to_text(std::max<int64_t>(attribute->count, 0)) + " values",
                "a number", place.path);
    return std::nullopt;
  }
  double value = 0;
  need_ok(H5Aread(attribute->id.get(), H5T_NATIVE_DOUBLE, &value), name);
  return value;
}

Handle open_object(const Place& place, const char* name, H5I_type_t type, Faults* faults) {
  const htri_t exists = H5Lexists(place.id, name, H5P_DEFAULT);
  need_ok(exists, name);
  if (exists == 0) return Handle();
  const char* const wanted = type == H5I_GROUP ? "a group" : "a dataset";
  H5L_info_t info;
  need_ok(H5Lget_info(place.id, name, &info, H5P_DEFAULT), name);
  if (info.type != H5L_TYPE_HARD) {
    faults->add(name, "a link to elsewhere", wanted, place.path);
    return Handle();
  }
  Handle object = need(H5Oopen(place.id, name, H5P_DEFAULT), name);
  if (H5Iget_type(object.get()) != type) {
    faults->add(name, H5Iget_type(object.get()) == H5I_GROUP ? "a group" : "another object", wanted,
                place.path);
    return Handle();
  }
  return object;
}

std::optional<FloatDataset> read_floats(hid_t dataset, const std::string& path,
                                        const std::vector<int64_t>& shape, size_t file_size,
                                        Faults* faults) {
  Handle type = need(H5Dget_type(dataset), path.c_str());
  Handle space = need(H5Dget_space(dataset), path.c_str());
  FloatDataset out;
  out.dtype = float_name(type.get());
  if (out.dtype.empty()) {
    faults->add("type of " + path, describe_type(type.get()),
                "float16, bfloat16, float32 or float64", path);
  }
  const std::vector<int64_t> got = shape_of(space.get());
  const bool is_null = H5Sget_simple_extent_type(space.get()) == H5S_NULL;
  if (!shape.empty() && (is_null || got != shape)) {
    faults->add("shape of " + path, is_null ? "no data" : list_text(got), list_text(shape), path);
    return std::nullopt;
  }
  if (out.dtype.empty() || shape.empty()) return std::nullopt;
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  const uint64_t bytes = static_cast<uint64_t>(count) * H5Tget_size(type.get());
  if (!storage_is_sound(dataset, path, bytes, file_size, faults)) return std::nullopt;

  out.values = module::Floats(static_cast<size_t>(count));
  if (out.dtype != "float64") {
    need_ok(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.values.data()),
            path.c_str());
    return out;
  }
  std::vector<double> wide(out.values.size());
  need_ok(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, wide.data()),
          path.c_str());
  int64_t overflows = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    out.values[i] = static_cast<float>(wide[i]);
    overflows += std::isinf(out.values[i]) && std::isfinite(wide[i]);
  }
  if (overflows > 0) {
    faults->add("values of " + path, to_text(overflows) + " beyond float32",
                "values that float32 can hold", path);
    return std::nullopt;
  }
  return out;
}

std::optional<std::vector<std::string>> read_string_list(hid_t dataset, const std::string& path,
                                                         size_t file_size, Faults* faults) {
  Handle type = need(H5Dget_type(dataset), path.c_str());
  Handle space = need(H5Dget_space(dataset), path.c_str());
  if (H5Tget_class(type.get()) != H5T_STRING) {
    faults->add("type of " + path, describe_type(type.get()), "strings", path);
    return std::nullopt;
  }
  const int64_t count = element_count(space.get());
  if (count <= 0) return std::vector<std::string>();
  if (count > static_cast<int64_t>(kNameLimit)) {
    faults->add("size of " + path, to_text(count) + " strings", "at most " + to_text(kNameLimit),
                path);
    return std::nullopt;
  }
  // The size of a variable-length string is that of its reference.
  const uint64_t bytes = static_cast<uint64_t>(count) * H5Tget_size(type.get());
  if (!storage_is_sound(dataset, path, bytes, file_size, faults)) return std::nullopt;
  return read_cells(type.get(), space.get(), count, path.c_str(),
                    [dataset](hid_t memory, void* out) {
                      return H5Dread(dataset, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
                    });
}

std::vector<std::string> link_names(const Place& place) {
  H5G_info_t info;
  need_ok(H5Gget_info(place.id, &info), place.path.c_str());
  std::vector<std::string> names;
  for (hsize_t i = 0; i < std::min<hsize_t>(info.nlinks, kNameLimit); ++i) {
    char name[256];
    need_ok(static_cast<herr_t>(
                std::min<ssize_t>(H5Lget_name_by_idx(place.id, ".", H5_INDEX_NAME, H5_ITER_INC, i,
                                                     name, sizeof(name), H5P_DEFAULT),
                                  1)),
            place.path.c_str());
    names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> attribute_names(const Place& place) {
  std::vector<std::string> names;
  const auto keep = [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
    auto* list = static_cast<std::vector<std::string>*>(out);
    list->emplace_back(name);
    return list->size() >= kNameLimit ? 1 : 0;
  };
  hsize_t index = 0;
  need_ok(H5Aiterate2(place.id, H5_INDEX_NAME, H5_ITER_INC, &index, keep, &names),
          place.path.c_str());
  return names;
}

}  // namespace volup::hdf5
