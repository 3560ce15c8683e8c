// SPDX-License-Identifier: Apache-2.0
//
// ONNX's ConvTranspose in volup's terms: its many ways to say padding become a number for each
// side. No graph here.
#ifndef VOLUP_LOAD_ONNX_ONNX_CONVOLUTION_H_
#define VOLUP_LOAD_ONNX_ONNX_CONVOLUTION_H_

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "volup/volup.h"

namespace volup::onnx_file {

// The node's attribute of that name, or null.
const onnx::AttributeProto* find_attribute(const onnx::NodeProto& node, const char* name);
int64_t integer_attribute(const onnx::NodeProto& node, const char* name, int64_t otherwise);

struct ResolvedGeometry {
  volup_geometry geometry{};
  std::vector<std::string> notes;
  std::string fault;  // empty: none
};

// weight: sizes of the weight, five. input: N, C, D, H, W where the file says them, else 0.
ResolvedGeometry resolve_geometry(const onnx::NodeProto& node, const std::vector<int64_t>& weight,
                                  const std::vector<int64_t>& input);

}  // namespace volup::onnx_file

#endif  // VOLUP_LOAD_ONNX_ONNX_CONVOLUTION_H_
