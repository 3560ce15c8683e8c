// SPDX-License-Identifier: Apache-2.0
//
// HDF5 files that are not volup's: finds out whose they are. Needs the module's mutex held.
#ifndef VOLUP_LOAD_HDF5_FOREIGN_READER_H_
#define VOLUP_LOAD_HDF5_FOREIGN_READER_H_

#include "load/hdf5/foreign_weights.h"

namespace volup::hdf5 {

// Throws module::Refusal: UNREADABLE for a file of no known kind, UNSUPPORTED with all faults.
module::LoadedModel read_foreign(const Place& root, size_t file_size,
                                 const volup_load_options& options);

}  // namespace volup::hdf5

#endif  // VOLUP_LOAD_HDF5_FOREIGN_READER_H_
