// SPDX-License-Identifier: Apache-2.0
//
// Careful reading of HDF5 objects: identifiers that close themselves, strings of every kind,
// numbers of every width, datasets whose size is checked before memory is taken. Knows nothing of
// the schema. Every function needs the module's mutex held (hdf5_module.cpp holds it).
#ifndef VOLUP_LOAD_HDF5_HDF5_ACCESS_H_
#define VOLUP_LOAD_HDF5_HDF5_ACCESS_H_

#include <hdf5.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "load/module_floats.h"

namespace volup::hdf5 {

// An HDF5 identifier, closed by H5Idec_ref or by a function of its own.
class Handle {
 public:
  Handle() = default;
  explicit Handle(hid_t id) : id_(id) {}
  Handle(Handle&& other) noexcept : id_(other.release()) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) H5Idec_ref(id_);
  }
  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  hid_t release() {
    const hid_t id = id_;
    id_ = H5I_INVALID_HID;
    return id;
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

// Stops HDF5 from printing to stderr, for the life of the object.
class SilentErrors {
 public:
  SilentErrors();
  ~SilentErrors();
  SilentErrors(const SilentErrors&) = delete;
  SilentErrors& operator=(const SilentErrors&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

// The innermost line of HDF5's error stack: "unable to open file".
std::string last_hdf5_error();

// Refuses as unreadable, with HDF5's words; need and need_ok do where a call that can only fail on
// damage failed.
[[noreturn]] void refuse_damaged(const char* what);
Handle need(hid_t id, const char* what);
void need_ok(herr_t result, const char* what);

// What a type is, for messages: "32-bit integer", "string", "compound".
std::string describe_type(hid_t type);

// Sizes of a dataspace; empty for a scalar. Refuses what is damaged.
std::vector<int64_t> shape_of(hid_t space);

// Faults of a file, gathered to be named at once.
struct Faults {
  std::vector<std::string> list;
  void add(const std::string& what, const std::string& got, const std::string& needed,
           const std::string& where) {
    list.push_back(what + ": got " + got + ", need " + needed + " (" + where + ")");
  }
};

// An object that may hold attributes, and how messages call it.
struct Place {
  hid_t id;
  std::string path;
};

// Each reads an attribute; empty, with a fault added, where it is missing or of another kind. A
// string may be of fixed or variable length, ASCII or UTF-8, padded in any way.
std::optional<std::string> read_string(const Place& place, const char* name, Faults* faults);
std::optional<std::vector<int64_t>> read_integers(const Place& place, const char* name,
                                                  size_t count, Faults* faults);
std::optional<double> read_number(const Place& place, const char* name, Faults* faults);
bool has_attribute(const Place& place, const char* name);

// An attribute of any number of strings; without elements of whatever type it is an empty list.
std::optional<std::vector<std::string>> read_strings(const Place& place, const char* name,
                                                     Faults* faults);

// The object called name that is stored in this file; empty if there is none. A soft or external
// link is a fault: a model is one file.
Handle open_object(const Place& place, const char* name, H5I_type_t type, Faults* faults);

// A dataset of floats, converted to float32. Empty with a fault where its type, shape or storage
// is not sound; shape is what the geometry says, or empty where the geometry is not known.
struct FloatDataset {
  module::Floats values;
  std::string dtype;
};
std::optional<FloatDataset> read_floats(hid_t dataset, const std::string& path,
                                        const std::vector<int64_t>& shape, size_t file_size,
                                        Faults* faults);

// A dataset of strings, any rank.
std::optional<std::vector<std::string>> read_string_list(hid_t dataset, const std::string& path,
                                                         size_t file_size, Faults* faults);

// Names of links and of attributes, sorted, at most 1,000 of each.
std::vector<std::string> link_names(const Place& place);
std::vector<std::string> attribute_names(const Place& place);

}  // namespace volup::hdf5

#endif  // VOLUP_LOAD_HDF5_HDF5_ACCESS_H_
