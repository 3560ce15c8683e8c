// SPDX-License-Identifier: Apache-2.0
//
// From an ONNX model to what it computes: follows the graph's nodes, matches what it returns, takes
// the weights.
#ifndef VOLUP_LOAD_ONNX_ONNX_GRAPH_H_
#define VOLUP_LOAD_ONNX_ONNX_GRAPH_H_

#include <onnx/onnx_pb.h>

#include "load/module_support.h"

namespace volup::onnx_file {

// Opsets whose operations are known.
inline constexpr int64_t kOldestOpset = 11;
inline constexpr int64_t kNewestOpset = 28;

// Takes the weights out of the model, which is left without them. Throws module::Refusal.
module::LoadedModel read_onnx(onnx::ModelProto* model);

}  // namespace volup::onnx_file

#endif  // VOLUP_LOAD_ONNX_ONNX_GRAPH_H_
