// SPDX-License-Identifier: Apache-2.0
//
// Writes a model in volup's HDF5 schema. Needs the module's mutex held.
#ifndef VOLUP_LOAD_HDF5_HDF5_WRITER_H_
#define VOLUP_LOAD_HDF5_HDF5_WRITER_H_

#include "load/module_abi.h"

namespace volup::hdf5 {

// The same model gives the same bytes. The file appears at path complete or not at all. Throws
// module::Refusal.
void write_model(const volup_module_model& model, const char* path);

}  // namespace volup::hdf5

#endif  // VOLUP_LOAD_HDF5_HDF5_WRITER_H_
