// SPDX-License-Identifier: Apache-2.0
//
// Reading tensors of a file whose shapes and strides are the file's word: libtorch's unpickler does
// not hold them against the storage.
#ifndef VOLUP_LOAD_TORCHSCRIPT_TENSOR_ACCESS_H_
#define VOLUP_LOAD_TORCHSCRIPT_TENSOR_ACCESS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "load/module_floats.h"

namespace volup::torchscript {

// Empty if every element is inside the tensor's storage and of a plain type; otherwise what is not.
std::string tensor_fault(const at::Tensor& tensor);

// The value of a tensor of one element; empty for any other.
std::optional<double> one_element(const at::Tensor& tensor);

// Elements in order, as float32; where they lie, if they are so there. Throws module::Refusal,
// naming the tensor by what.
module::Floats floats_of(const at::Tensor& tensor, const char* what);

// "float32", "float16", "bfloat16", "float64"; empty for others.
std::string type_name(const at::Tensor& tensor);

// Of numbers as TorchScript has them for types: float32 or float64; any float.
bool is_wide_type(int64_t scalar_type);
bool is_float_type(int64_t scalar_type);

}  // namespace volup::torchscript

#endif  // VOLUP_LOAD_TORCHSCRIPT_TENSOR_ACCESS_H_
