// SPDX-License-Identifier: Apache-2.0
//
// HDF5 files that Keras wrote: whole models and weights alone of Keras 1 to 3's legacy format, and
// Keras 3's .weights.h5. Needs the module's mutex held.
#ifndef VOLUP_LOAD_HDF5_KERAS_READER_H_
#define VOLUP_LOAD_HDF5_KERAS_READER_H_

#include "load/hdf5/foreign_weights.h"

namespace volup::hdf5 {

bool is_keras(const ForeignFile& file);

module::LoadedModel read_keras(ForeignFile* file);

}  // namespace volup::hdf5

#endif  // VOLUP_LOAD_HDF5_KERAS_READER_H_
