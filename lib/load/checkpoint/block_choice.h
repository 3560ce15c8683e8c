// SPDX-License-Identifier: Apache-2.0
//
// Picks the block's parameters out of named tensors, and says what is missing where the file and
// the options leave anything open. By names as PyTorch gives them: "up.weight" has its bias in
// "up.bias". Nothing is guessed from shapes.
#ifndef VOLUP_LOAD_CHECKPOINT_BLOCK_CHOICE_H_
#define VOLUP_LOAD_CHECKPOINT_BLOCK_CHOICE_H_

#include "load/checkpoint/tensor_file.h"
#include "load/module_support.h"

namespace volup::checkpoint {

// Throws module::Refusal.
module::LoadedModel choose_block(const TensorFile& file, const volup_load_options& options);

}  // namespace volup::checkpoint

#endif  // VOLUP_LOAD_CHECKPOINT_BLOCK_CHOICE_H_
