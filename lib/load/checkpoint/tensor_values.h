// SPDX-License-Identifier: Apache-2.0
//
// The values of a stored tensor as float32, whatever its type and strides.
#ifndef VOLUP_LOAD_CHECKPOINT_TENSOR_VALUES_H_
#define VOLUP_LOAD_CHECKPOINT_TENSOR_VALUES_H_

#include "load/checkpoint/tensor_file.h"
#include "load/module_floats.h"

namespace volup::checkpoint {

// Whether floats_of takes its type: float32, float16, bfloat16 or float64.
bool is_float(const StoredTensor& tensor);

// Elements in order. Throws module::Refusal, naming the tensor: another type, fewer stored elements
// than it has itself, a float64 beyond float32.
module::Floats floats_of(const StoredTensor& tensor);

}  // namespace volup::checkpoint

#endif  // VOLUP_LOAD_CHECKPOINT_TENSOR_VALUES_H_
