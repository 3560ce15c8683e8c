// SPDX-License-Identifier: Apache-2.0
//
// A PyTorch state_dict that someone wrote to HDF5: datasets named as PyTorch names parameters, with
// dots, or with groups in their stead. Needs the module's mutex held.
#ifndef VOLUP_LOAD_HDF5_STATE_DICT_READER_H_
#define VOLUP_LOAD_HDF5_STATE_DICT_READER_H_

#include "load/hdf5/foreign_weights.h"

namespace volup::hdf5 {

// Whether a dataset is named as a weight of PyTorch's is.
bool is_state_dict(const Tree& tree);

module::LoadedModel read_state_dict(ForeignFile* file);

}  // namespace volup::hdf5

#endif  // VOLUP_LOAD_HDF5_STATE_DICT_READER_H_
