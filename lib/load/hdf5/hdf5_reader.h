// SPDX-License-Identifier: Apache-2.0
//
// Reads a model in volup's HDF5 schema. Needs the module's mutex held.
#ifndef VOLUP_LOAD_HDF5_HDF5_READER_H_
#define VOLUP_LOAD_HDF5_HDF5_READER_H_

#include <cstddef>

#include "load/hdf5/hdf5_access.h"
#include "load/module_support.h"

namespace volup::hdf5 {

// Whether the file means to be volup's: it says so, or has a group of geometry.
bool is_volup_model(const Place& root);

// Throws module::Refusal: UNREADABLE where the file is damaged, UNSUPPORTED with every fault of the
// model at once.
module::LoadedModel read_volup_model(const Place& root, size_t file_size);

}  // namespace volup::hdf5

#endif  // VOLUP_LOAD_HDF5_HDF5_READER_H_
