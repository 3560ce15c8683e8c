// SPDX-License-Identifier: Apache-2.0
//
// Reads a model in volup's HDF5 schema from memory. Needs the module's mutex held.
#ifndef VOLUP_LOAD_HDF5_HDF5_READER_H_
#define VOLUP_LOAD_HDF5_HDF5_READER_H_

#include <cstddef>

#include "load/module_support.h"

namespace volup::hdf5 {

// Throws module::Refusal: UNREADABLE for bytes that are no sound HDF5 file or no volup model,
// UNSUPPORTED with every fault of a volup model at once.
module::LoadedModel read_model(const void* data, size_t size);

}  // namespace volup::hdf5

#endif  // VOLUP_LOAD_HDF5_HDF5_READER_H_
