// SPDX-License-Identifier: Apache-2.0
//
// Writes a model in volup's HDF5 schema (hdf5_schema.h): into a new file beside its goal, which is
// made durable and renamed.
#include "load/hdf5/hdf5_writer.h"

#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "load/hdf5/hdf5_access.h"
#include "load/hdf5/hdf5_schema.h"
#include "load/module_support.h"

namespace volup::hdf5 {
namespace {

using module::Refusal;
using module::to_text;

Handle made(hid_t id, const char* what) {
  if (id < 0) {
    throw Refusal(VOLUP_STATUS_INTERNAL,
                  std::string("HDF5 cannot write ") + what + ": " + last_hdf5_error());
  }
  return Handle(id);
}

void wrote(herr_t result, const char* what) {
  if (result < 0) {
    throw Refusal(VOLUP_STATUS_INTERNAL,
                  std::string("HDF5 cannot write ") + what + ": " + last_hdf5_error());
  }
}

void write_attribute(hid_t place, const char* name, hid_t stored, hid_t memory, hsize_t count,
                     bool scalar, const void* values) {
  const Handle space =
      made(scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr), name);
  const Handle attribute =
      made(H5Acreate2(place, name, stored, space.get(), H5P_DEFAULT, H5P_DEFAULT), name);
  wrote(H5Awrite(attribute.get(), memory, values), name);
}

Handle string_type(size_t size, const char* what) {
  Handle type = made(H5Tcopy(H5T_C_S1), what);
  wrote(H5Tset_size(type.get(), std::max<size_t>(size, 1)), what);
  wrote(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), what);
  wrote(H5Tset_cset(type.get(), H5T_CSET_UTF8), what);
  return type;
}

// Attributes hold at most 64 KiB.
void write_string(hid_t place, const char* name, const char* text) {
  constexpr size_t kLimit = 32 * 1024;
  std::string value = text ? text : "";
  value.resize(std::min(value.size(), kLimit));
  const Handle type = string_type(value.size(), name);
  // A buffer of one zero byte stands for the empty string.
  write_attribute(place, name, type.get(), type.get(), 1, true, value.c_str());
}

Handle group(hid_t file, const char* name) {
  const Handle plist = made(H5Pcreate(H5P_GROUP_CREATE), name);
  wrote(H5Pset_obj_track_times(plist.get(), false), name);
  return made(H5Gcreate2(file, name, H5P_DEFAULT, plist.get(), H5P_DEFAULT), name);
}

// The fletcher32 filter gives each chunk a checksum. HDF5 reads a chunk into memory of its own
// before it copies it to its reader's, so chunks are no larger than the 1 MiB of its chunk cache:
// whole slices along the axes that the first ones leave room for.
void set_checksum(hid_t plist, hid_t stored, const std::vector<hsize_t>& shape, const char* name) {
  constexpr hsize_t kLimit = hsize_t{1} << 20;
  std::vector<hsize_t> chunk = shape;
  hsize_t bytes = H5Tget_size(stored);
  for (size_t axis = shape.size(); axis-- > 0;) {
    const hsize_t most = std::max<hsize_t>(kLimit / bytes, 1);
    const hsize_t pieces = (shape[axis] + most - 1) / most;
    chunk[axis] = (shape[axis] + pieces - 1) / pieces;  // alike, so that the last is not empty
    bytes *= chunk[axis];
  }
  wrote(H5Pset_chunk(plist, static_cast<int>(chunk.size()), chunk.data()), name);
  wrote(H5Pset_fletcher32(plist), name);
}

void write_dataset(hid_t file, const char* name, hid_t stored, hid_t memory,
                   const std::vector<hsize_t>& shape, const void* values) {
  const Handle plist = made(H5Pcreate(H5P_DATASET_CREATE), name);
  wrote(H5Pset_obj_track_times(plist.get(), false), name);
  set_checksum(plist.get(), stored, shape, name);
  const Handle space =
      made(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), name);
  const Handle dataset = made(
      H5Dcreate2(file, name, stored, space.get(), H5P_DEFAULT, plist.get(), H5P_DEFAULT), name);
  wrote(H5Dwrite(dataset.get(), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), name);
}

void write_list(hid_t file, const char* name, const char* text) {
  const std::vector<std::string> lines = module::split_lines(text);
  if (lines.empty()) return;
  size_t width = 1;
  for (const std::string& line : lines) width = std::max(width, line.size());
  std::vector<char> cells(width * lines.size(), '\0');
  for (size_t i = 0; i < lines.size(); ++i) lines[i].copy(cells.data() + i * width, width);
  const Handle type = string_type(width, name);
  write_dataset(file, name, type.get(), type.get(), {lines.size()}, cells.data());
}

void write_geometry(hid_t file, const volup_geometry& geometry) {
  const Handle place = group(file, kGeometry);
  for (const CountField& field : kCountFields) {
    write_attribute(place.get(), field.name, H5T_STD_I64LE, H5T_NATIVE_INT64, 1, true,
                    &(geometry.*field.field));
  }
  for (const AxesField& field : kAxesFields) {
    write_attribute(place.get(), field.name, H5T_STD_I64LE, H5T_NATIVE_INT64, 3, false,
                    geometry.*field.field);
  }
}

void write_origin(hid_t file, const volup_module_model& model) {
  const char* const values[] = {model.origin_kind, model.origin_producer, model.origin_sha256};
  if (!values[0] && !values[1] && !values[2]) return;
  const Handle place = group(file, kOrigin);
  for (int i = 0; i < 3; ++i) {
    if (values[i]) write_string(place.get(), kOriginFields[i], values[i]);
  }
}

const ModelType& type_of(const volup_module_model& model) {
  for (const ModelType& type : kModelTypes) {
    if (type.kind == model.epilogue.kind) return type;
  }
  throw Refusal(VOLUP_STATUS_INVALID_ARGUMENT,
                "epilogue kind: got " + to_text(model.epilogue.kind) + ", need a known kind");
}

void write_contents(const volup_module_model& model, const std::string& path) {
  const volup_geometry& geometry = model.geometry;
  const ModelType& type = type_of(model);
  const Handle access = made(H5Pcreate(H5P_FILE_ACCESS), "the file");
  // The form of HDF5 1.10, the first in which all but the data itself has checksums, the place of a
  // lone chunk included.
  wrote(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), "the file");
  const Handle creation = made(H5Pcreate(H5P_FILE_CREATE), "the file");
  wrote(H5Pset_obj_track_times(creation.get(), false), "the file");
  Handle file =
      made(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), "the file");
  const hid_t id = file.get();

  write_string(id, kFormat, kFormatName);
  write_attribute(id, kVersion, H5T_STD_I64LE, H5T_NATIVE_INT64, 1, true, &kFormatVersion);
  write_string(id, kType, type.name);
  write_string(id, kProducer,
               ("volup " + to_text(VOLUP_VERSION_MAJOR) + "." + to_text(VOLUP_VERSION_MINOR) + "." +
                to_text(VOLUP_VERSION_PATCH))
                   .c_str());
  write_geometry(id, geometry);
  if (type.constant_count > 0) {
    const Handle place = group(id, kEpilogue);
    for (int i = 0; i < type.constant_count; ++i) {
      write_attribute(place.get(), type.constants[i].name, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1,
                      true, &(model.epilogue.*type.constants[i].field));
    }
  }
  write_origin(id, model);
  write_dataset(id, kWeight, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT,
                {static_cast<hsize_t>(geometry.in_channels),
                 static_cast<hsize_t>(geometry.out_channels / geometry.groups),
                 static_cast<hsize_t>(geometry.kernel[0]), static_cast<hsize_t>(geometry.kernel[1]),
                 static_cast<hsize_t>(geometry.kernel[2])},
                model.weight);
  if (model.bias) {
    write_dataset(id, kBias, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT,
                  {static_cast<hsize_t>(geometry.out_channels)}, model.bias);
  }
  write_list(id, kUnused, model.unused);
  write_list(id, kNotes, model.notes);

  // Closing writes what is left, and may fail where the disk is full.
  wrote(H5Fclose(file.release()), "the file");
}

[[noreturn]] void fail(const std::string& what, const std::string& path, int code) {
  throw Refusal(VOLUP_STATUS_UNREADABLE,
                "cannot " + what + " " + path + ": " + std::generic_category().message(code));
}

// A file beside its goal, gone unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& goal) {
    static std::atomic<unsigned> counter{0};
    for (int attempt = 0;; ++attempt) {
      path_ = goal + ".tmp" + to_text(static_cast<int64_t>(::getpid())) + "-" + to_text(++counter);
      descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor_ >= 0) return;
      if (errno != EEXIST || attempt > 100) fail("create", path_, errno);
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  const std::string& path() const { return path_; }

  void make_durable() {
    if (::fsync(descriptor_) != 0 && errno != EINVAL) fail("write", path_, errno);
  }

  void rename_to(const std::string& goal) {
    if (::rename(path_.c_str(), goal.c_str()) != 0) fail("replace", goal, errno);
    path_.clear();
  }

 private:
  std::string path_;
  int descriptor_ = -1;
};

// The new name is on the disk only once its folder is; a file system that cannot do it still has
// the file.
void sync_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder =
      slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

void write_model(const volup_module_model& model, const char* path) {
  const std::string goal = path;
  TemporaryFile file(goal);
  write_contents(model, file.path());
  file.make_durable();
  file.rename_to(goal);
  sync_folder(goal);
}

}  // namespace volup::hdf5
