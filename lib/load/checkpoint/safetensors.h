// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a safetensors file: 8 bytes with the header's size, the header in JSON, the
// tensors' bytes. Stricter than its own readers where those differ: no key twice, no hole, no byte
// of two tensors.
#ifndef VOLUP_LOAD_CHECKPOINT_SAFETENSORS_H_
#define VOLUP_LOAD_CHECKPOINT_SAFETENSORS_H_

#include <string_view>

#include "load/checkpoint/tensor_file.h"

namespace volup::checkpoint {

// The bytes must outlive the answer. Throws module::Refusal.
TensorFile read_safetensors(std::string_view bytes);

}  // namespace volup::checkpoint

#endif  // VOLUP_LOAD_CHECKPOINT_SAFETENSORS_H_
