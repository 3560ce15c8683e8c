// SPDX-License-Identifier: Apache-2.0
//
// hdf5_file.h for a build without HDF5: each function refuses with one sentence.
#include "failure.h"
#include "hdf5_file.h"

namespace volup::tool {
namespace {

[[noreturn]] void refuse(const std::string& file) {
  throw Failure(ExitCode::kUnsupported, "this volup was built without HDF5 (VOLUP_HDF5=OFF), so '" +
                                            file + "' can be neither read nor written");
}

}  // namespace

Shape read_shape(const DatasetName& where) { refuse(where.file); }

Tensor read_tensor(const DatasetName& where, Progress* /*progress*/) { refuse(where.file); }

void read_in_pieces(const DatasetName& where, Progress* /*progress*/,
                    const std::function<void(std::span<const double>)>& /*take*/) {
  refuse(where.file);
}

bool has_dataset(const DatasetName& where) { refuse(where.file); }

std::vector<double> read_attribute(const std::string& file, const std::string& /*name*/) {
  refuse(file);
}

void require_writable(const DatasetName& where) { refuse(where.file); }

void write_tensor(const DatasetName& where, const Tensor& /*tensor*/, Progress* /*progress*/) {
  refuse(where.file);
}

}  // namespace volup::tool
