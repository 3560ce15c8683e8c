// SPDX-License-Identifier: Apache-2.0
//
// See hdf5_file.h. HDF5 errors become Failures here; HDF5's own printing is off for each call.
#include "hdf5_file.h"

#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "failure.h"

namespace volup::tool {
namespace {

namespace fs = std::filesystem;

// Elements moved at once: big enough for the disk, small enough for the bar to move.
constexpr hsize_t kPieceElements = hsize_t{1} << 22;

using Close = herr_t (*)(hid_t);

// Owns one HDF5 identifier.
class Id {
 public:
  Id(hid_t id, Close close) : id_(id), close_(close) {}
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Id& operator=(Id&&) = delete;
  ~Id() { closed(); }
  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }
  // Closing a file writes it: only closed() can tell that this failed.
  bool closed() {
    const hid_t id = std::exchange(id_, H5I_INVALID_HID);
    return id < 0 || close_(id) >= 0;
  }

 private:
  hid_t id_;
  Close close_;
};

// HDF5 prints its error stack to stderr unless told not to; the sentence is ours to say.
class Silence {
 public:
  Silence() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Silence() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

// The innermost reason on HDF5's error stack.
std::string hdf5_reason() {
  std::string reason;
  const auto visit = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    if (error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 1;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, visit, &reason);
  return reason.empty() ? "HDF5 gave no reason" : reason;
}

[[noreturn]] void unreadable(const std::string& sentence) {
  throw Failure(ExitCode::kUnreadable, sentence);
}

[[noreturn]] void unsupported(const std::string& sentence) {
  throw Failure(ExitCode::kUnsupported, sentence);
}

std::string quoted(const DatasetName& where) {
  return "dataset '" + where.dataset + "' of '" + where.file + "'";
}

void require_hdf5(const std::string& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (!fs::exists(status)) unreadable("cannot read '" + file + "': no such file");
  if (fs::is_directory(status)) unreadable("cannot read '" + file + "': it is a directory");
  if (access(file.c_str(), R_OK) != 0) {
    unreadable("cannot read '" + file + "': " + std::generic_category().message(errno));
  }
  if (fs::is_regular_file(status) && fs::file_size(file, error) == 0) {
    unreadable("cannot read '" + file + "': the file is empty");
  }
  if (H5Fis_hdf5(file.c_str()) <= 0) unreadable("'" + file + "' is not an HDF5 file");
}

Id open_file(const std::string& file, unsigned flags) {
  require_hdf5(file);
  Id id(H5Fopen(file.c_str(), flags, H5P_DEFAULT), H5Fclose);
  if (!id.valid()) unreadable("cannot open HDF5 file '" + file + "': " + hdf5_reason());
  return id;
}

std::vector<std::string> root_names(hid_t file) {
  constexpr hsize_t kEnough = 16;  // for an error text
  std::vector<std::string> names;
  H5G_info_t group{};
  if (H5Gget_info(file, &group) < 0) return names;
  for (hsize_t i = 0; i < std::min(group.nlinks, kEnough); ++i) {
    const ssize_t length =
        H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, nullptr, 0, H5P_DEFAULT);
    if (length < 0) continue;
    std::string name(static_cast<std::size_t>(length) + 1, '\0');
    H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size(),
                       H5P_DEFAULT);
    name.pop_back();
    names.push_back(name);
  }
  return names;
}

// Whether path leads to an object; every part of it must, or HDF5 calls the question an error.
bool object_exists(hid_t file, const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (part.empty() || H5Lexists(file, part.c_str(), H5P_DEFAULT) <= 0) return false;
    if (end == std::string::npos) return H5Oexists_by_name(file, path.c_str(), H5P_DEFAULT) > 0;
  }
}

// A dataset of rank 5 with real numbers, opened.
struct Opened {
  Id file;
  Id dataset;
  Id space;
  Shape shape{};
};

Opened open_tensor(const DatasetName& where) {
  Id file = open_file(where.file, H5F_ACC_RDONLY);
  if (!object_exists(file.get(), where.dataset)) {
    const std::vector<std::string> names = root_names(file.get());
    unreadable("'" + where.file + "' has no dataset '" + where.dataset + "' (it has " +
               (names.empty() ? "none" : join(names, ", ")) + ")");
  }
  Id dataset(H5Dopen2(file.get(), where.dataset.c_str(), H5P_DEFAULT), H5Dclose);
  if (!dataset.valid()) unreadable("cannot open " + quoted(where) + ": " + hdf5_reason());
  const Id type(H5Dget_type(dataset.get()), H5Tclose);
  const H5T_class_t type_class = H5Tget_class(type.get());
  if (type_class != H5T_FLOAT && type_class != H5T_INTEGER) {
    unsupported(quoted(where) + ": got elements that are no real numbers, need floats or integers");
  }
  Id space(H5Dget_space(dataset.get()), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank != 5) {
    unsupported(quoted(where) + ": got rank " + std::to_string(rank) + ", need 5 (N,C,D,H,W)");
  }
  hsize_t sizes[5];
  H5Sget_simple_extent_dims(space.get(), sizes, nullptr);
  Opened opened{std::move(file), std::move(dataset), std::move(space)};
  std::copy(sizes, sizes + 5, opened.shape.begin());
  if (!element_count(opened.shape)) {
    unsupported(quoted(where) + ": its shape " + shape_text(opened.shape) + " is too large");
  }
  return opened;
}

// Calls move(memory space, file space, first element, elements) for pieces of whole hyperplanes of
// the leading axes, in order, until all of shape is done.
void for_each_piece(const Shape& shape, hid_t file_space, Progress* progress,
                    const std::function<void(hid_t, hid_t, hsize_t, hsize_t)>& move) {
  const hsize_t all = static_cast<hsize_t>(*element_count(shape));
  if (all == 0) return;
  // The outermost axis whose planes are small enough; axes before it are walked one at a time.
  std::size_t axis = 0;
  hsize_t plane = all / static_cast<hsize_t>(shape[0]);
  while (axis < 4 && plane > kPieceElements) plane /= static_cast<hsize_t>(shape[++axis]);
  const hsize_t axis_size = static_cast<hsize_t>(shape[axis]);
  const hsize_t step = std::min(std::max<hsize_t>(kPieceElements / plane, 1), axis_size);
  for (hsize_t done = 0; done < all;) {
    hsize_t start[5] = {};
    hsize_t count[5] = {1, 1, 1, 1, 1};
    hsize_t rest = done / plane;
    for (std::size_t a = axis + 1; a-- > 0;) {
      start[a] = rest % static_cast<hsize_t>(shape[a]);
      rest /= static_cast<hsize_t>(shape[a]);
    }
    count[axis] = std::min(step, axis_size - start[axis]);
    for (std::size_t a = axis + 1; a < 5; ++a) count[a] = static_cast<hsize_t>(shape[a]);
    const hsize_t elements = count[axis] * plane;
    const Id memory_space(H5Screate_simple(1, &elements, nullptr), H5Sclose);
    H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, nullptr, count, nullptr);
    move(memory_space.get(), file_space, done, elements);
    done += elements;
    progress->done(static_cast<std::int64_t>(done), static_cast<std::int64_t>(all));
  }
}

// Puts shape and values in a new dataset; its name must be free.
void create_dataset(hid_t file, const DatasetName& where, const std::string& name,
                    const Tensor& tensor, Progress* progress) {
  hsize_t sizes[5];
  std::copy(tensor.shape.begin(), tensor.shape.end(), sizes);
  const Id space(H5Screate_simple(5, sizes, nullptr), H5Sclose);
  const Id links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.get(), 1);
  H5Pset_char_encoding(links.get(), H5T_CSET_UTF8);
  const Id dataset(H5Dcreate2(file, name.c_str(), H5T_IEEE_F32LE, space.get(), links.get(),
                              H5P_DEFAULT, H5P_DEFAULT),
                   H5Dclose);
  if (!dataset.valid()) unreadable("cannot write " + quoted(where) + ": " + hdf5_reason());
  for_each_piece(tensor.shape, space.get(), progress,
                 [&](hid_t memory, hid_t selection, hsize_t first, hsize_t) {
                   if (H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, memory, selection, H5P_DEFAULT,
                                tensor.values.data() + first) < 0) {
                     unreadable("cannot write " + quoted(where) + ": " + hdf5_reason());
                   }
                 });
}

// Puts the tensor in the dataset, an older one of that name being dropped only when the new one is
// written.
void put_dataset(hid_t file, const DatasetName& where, const Tensor& tensor, Progress* progress) {
  if (!object_exists(file, where.dataset)) {
    create_dataset(file, where, where.dataset, tensor, progress);
    return;
  }
  const std::string incoming = where.dataset + ".volup-incoming";
  // Left behind by a run that was killed while writing.
  if (object_exists(file, incoming)) H5Ldelete(file, incoming.c_str(), H5P_DEFAULT);
  create_dataset(file, where, incoming, tensor, progress);
  if (H5Ldelete(file, where.dataset.c_str(), H5P_DEFAULT) < 0 ||
      H5Lmove(file, incoming.c_str(), file, where.dataset.c_str(), H5P_DEFAULT, H5P_DEFAULT) < 0) {
    unreadable("cannot replace " + quoted(where) + ": " + hdf5_reason());
  }
}

}  // namespace

Shape read_shape(const DatasetName& where) {
  const Silence silence;
  return open_tensor(where).shape;
}

Tensor read_tensor(const DatasetName& where, Progress* progress) {
  const Silence silence;
  const Opened opened = open_tensor(where);
  Tensor tensor{opened.shape, {}};
  tensor.values.resize(static_cast<std::size_t>(*element_count(opened.shape)));
  progress->phase("reading " + where.dataset);
  for_each_piece(opened.shape, opened.space.get(), progress,
                 [&](hid_t memory, hid_t selection, hsize_t first, hsize_t) {
                   if (H5Dread(opened.dataset.get(), H5T_NATIVE_FLOAT, memory, selection,
                               H5P_DEFAULT, tensor.values.data() + first) < 0) {
                     unreadable("cannot read " + quoted(where) + ": " + hdf5_reason());
                   }
                 });
  return tensor;
}

void read_in_pieces(const DatasetName& where, Progress* progress,
                    const std::function<void(std::span<const double>)>& take) {
  const Silence silence;
  const Opened opened = open_tensor(where);
  std::vector<double> piece;
  for_each_piece(opened.shape, opened.space.get(), progress,
                 [&](hid_t memory, hid_t selection, hsize_t, hsize_t elements) {
                   piece.resize(elements);
                   if (H5Dread(opened.dataset.get(), H5T_NATIVE_DOUBLE, memory, selection,
                               H5P_DEFAULT, piece.data()) < 0) {
                     unreadable("cannot read " + quoted(where) + ": " + hdf5_reason());
                   }
                   take(piece);
                 });
}

bool has_dataset(const DatasetName& where) {
  const Silence silence;
  const Id file = open_file(where.file, H5F_ACC_RDONLY);
  return object_exists(file.get(), where.dataset);
}

std::vector<double> read_attribute(const std::string& file, const std::string& name) {
  const Silence silence;
  const Id id = open_file(file, H5F_ACC_RDONLY);
  if (H5Aexists(id.get(), name.c_str()) <= 0) return {};
  const std::string what = "attribute '" + name + "' of '" + file + "'";
  const Id attribute(H5Aopen(id.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!attribute.valid()) unreadable("cannot open " + what + ": " + hdf5_reason());
  const Id type(H5Aget_type(attribute.get()), H5Tclose);
  const Id space(H5Aget_space(attribute.get()), H5Sclose);
  const H5T_class_t type_class = H5Tget_class(type.get());
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if ((type_class != H5T_FLOAT && type_class != H5T_INTEGER) || count < 1 || count > 16) {
    unsupported(what + ": need one number or a few");
  }
  std::vector<double> values(static_cast<std::size_t>(count));
  if (H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, values.data()) < 0) {
    unreadable("cannot read " + what + ": " + hdf5_reason());
  }
  return values;
}

void require_writable(const DatasetName& where) {
  const Silence silence;
  if (where.dataset.find_first_not_of('/') == std::string::npos || where.dataset.ends_with('/')) {
    throw Failure(ExitCode::kUsage, "'" + where.dataset + "' is no name for a dataset");
  }
  std::error_code error;
  if (!fs::exists(where.file, error)) {
    const fs::path parent = fs::path(where.file).parent_path();
    const std::string directory = parent.empty() ? "." : parent.string();
    if (!fs::is_directory(directory, error)) {
      unreadable("cannot write '" + where.file + "': no such directory '" + directory + "'");
    }
    if (access(directory.c_str(), W_OK) != 0) {
      unreadable("cannot write '" + where.file + "': " + std::generic_category().message(errno));
    }
    return;
  }
  const Id file = open_file(where.file, H5F_ACC_RDWR);
  if (!object_exists(file.get(), where.dataset)) return;
  const Id object(H5Oopen(file.get(), where.dataset.c_str(), H5P_DEFAULT), H5Oclose);
  if (H5Iget_type(object.get()) != H5I_DATASET) {
    unsupported("cannot replace '" + where.dataset + "' of '" + where.file + "': it is no dataset");
  }
}

void write_tensor(const DatasetName& where, const Tensor& tensor, Progress* progress) {
  const Silence silence;
  progress->phase("writing " + where.dataset);
  std::error_code error;
  const bool fresh = !fs::exists(where.file, error);
  Id file =
      fresh ? Id(H5Fcreate(where.file.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT), H5Fclose)
            : open_file(where.file, H5F_ACC_RDWR);
  if (!file.valid()) unreadable("cannot create '" + where.file + "': " + hdf5_reason());
  try {
    put_dataset(file.get(), where, tensor, progress);
    if (!file.closed()) unreadable("cannot write '" + where.file + "': " + hdf5_reason());
  } catch (...) {
    if (fresh) fs::remove(where.file, error);
    throw;
  }
}

}  // namespace volup::tool
