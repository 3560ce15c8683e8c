// SPDX-License-Identifier: Apache-2.0
//
// The numbers in ONNX tensors, which lie there in several ways. Every size is held against the
// bytes that are stored before memory is taken.
#ifndef VOLUP_LOAD_ONNX_ONNX_TENSOR_H_
#define VOLUP_LOAD_ONNX_ONNX_TENSOR_H_

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "load/module_floats.h"

namespace volup::onnx_file {

// Sizes of a tensor, each 0 or more, and how many elements they make. Refuses others.
std::vector<int64_t> shape_of(const onnx::TensorProto& tensor);
int64_t count_of(const onnx::TensorProto& tensor);

// "float32", "float16", "bfloat16", "float64"; empty for other types.
std::string float_name(const onnx::TensorProto& tensor);
// For messages: the above, or ONNX's name of the type.
std::string type_name(int32_t type);

// As float32. Refuses types that are no floats, values beyond float32, and sizes that do not fit.
// What the tensor stores as they are is taken out of it.
module::Floats take_floats(onnx::TensorProto* tensor);

// One element of whatever type as a number; nothing for other counts and types.
std::optional<double> read_number(const onnx::TensorProto& tensor);

// 64-bit or 32-bit integers; nothing for other types.
std::optional<std::vector<int64_t>> read_integers(const onnx::TensorProto& tensor);

}  // namespace volup::onnx_file

#endif  // VOLUP_LOAD_ONNX_ONNX_TENSOR_H_
