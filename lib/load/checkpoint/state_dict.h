// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a zip archive of torch.save: a state_dict, bare or in a checkpoint's dictionary.
// The pickle is read, not run: a list of names says what may occur in it, all others are refused.
#ifndef VOLUP_LOAD_CHECKPOINT_STATE_DICT_H_
#define VOLUP_LOAD_CHECKPOINT_STATE_DICT_H_

#include "load/archive/zip_archive.h"
#include "load/checkpoint/tensor_file.h"

namespace volup::checkpoint {

// The archive must outlive the answer. submodule: the name that the user wants a block of, which
// may begin with the key of a dictionary; empty: none. Throws module::Refusal.
TensorFile read_state_dict(const archive::ZipArchive& archive, std::string_view submodule);

}  // namespace volup::checkpoint

#endif  // VOLUP_LOAD_CHECKPOINT_STATE_DICT_H_
