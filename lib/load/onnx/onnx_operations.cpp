// SPDX-License-Identifier: Apache-2.0
//
// The table of operations that are understood, and what they share: operands, axes, and what
// becomes of the rest. The operations themselves are in onnx_functions.cpp.
#include "load/onnx/onnx_operations.h"

#include <algorithm>
#include <utility>

#include "load/module_support.h"
#include "load/onnx/onnx_convolution.h"
#include "load/onnx/onnx_tensor.h"

namespace volup::onnx_file {
namespace {

using module::quoted;

Site site_of(const onnx::NodeProto& node) {
  const std::string output = node.output_size() > 0 ? node.output(0) : "";
  const std::string name =
      node.name().empty() ? "that gives " + quoted(output) : quoted(node.name());
  const bool is_standard = node.domain().empty() || node.domain() == "ai.onnx";
  return {is_standard ? node.op_type() : node.domain() + "::" + node.op_type(), "node " + name};
}

}  // namespace

Value Operations::of_input(int index, const std::string& name) const {
  Value value;
  value.expression = pool_.input(index);
  value.name = name;
  return value;
}

Value Operations::of_constant(const onnx::TensorProto* tensor, const std::string& name) const {
  Value value;
  value.tensor = tensor;
  value.name = name;
  // More axes than five would add some to the result.
  if (tensor->dims_size() > 5 || count_of(*tensor) != 1) return value;
  if (const auto number = read_number(*tensor)) value.expression = pool_.constant(*number);
  return value;
}

Value Operations::run(const onnx::NodeProto& node, const std::vector<Value>& inputs) {
  const Call call{node, inputs, site_of(node)};
  const bool is_standard = node.domain().empty() || node.domain() == "ai.onnx";
  const Handler handler = is_standard ? find_handler(node.op_type()) : nullptr;
  Value result = handler ? (this->*handler)(call) : unsuited(call);
  if (node.output_size() > 0) result.name = node.output(0);
  return result;
}

Operations::Handler Operations::find_handler(const std::string& name) {
  static const auto* const handlers = new std::map<std::string, Handler>{
      {"Add", &Operations::add},
      {"Cast", &Operations::cast},
      {"Clip", &Operations::clip},
      {"Constant", &Operations::constant},
      {"ConvTranspose", &Operations::conv_transpose},
      {"Div", &Operations::div},
      {"Dropout", &Operations::dropout},
      {"Exp", &Operations::exp},
      {"HardSigmoid", &Operations::hard_sigmoid},
      {"HardSwish", &Operations::hard_swish},
      {"Identity", &Operations::same},
      {"Log", &Operations::log},
      {"Max", &Operations::maximum},
      {"Min", &Operations::minimum},
      {"Mul", &Operations::mul},
      {"Neg", &Operations::neg},
      {"Pow", &Operations::pow},
      {"Reciprocal", &Operations::reciprocal},
      {"ReduceLogSumExp", &Operations::reduce_log_sum_exp},
      {"ReduceMax", &Operations::reduce_max},
      {"ReduceSum", &Operations::reduce_sum},
      {"Relu", &Operations::relu},
      {"Sigmoid", &Operations::sigmoid},
      {"Softmax", &Operations::softmax},
      {"Sub", &Operations::sub},
      {"Transpose", &Operations::transpose},
      {"Unsqueeze", &Operations::unsqueeze},
  };
  const auto found = handlers->find(name);
  return found == handlers->end() ? nullptr : found->second;
}

void Operations::note(const std::string& text) {
  if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
}

Value Operations::unsuited(const Call& call, const std::string& reason) const {
  std::vector<const Expression*> from;
  std::string why = reason;
  for (const Value& input : call.inputs) {
    if (input.expression) from.push_back(input.expression);
    if (why.empty() && input.tensor && !input.expression && input.tensor->dims_size() > 0) {
      why = "with a constant of shape " + module::list_text(shape_of(*input.tensor));
    }
  }
  return plain(pool_.other(std::move(from), std::move(why), call.site));
}

Value Operations::plain(const Expression* expression) const {
  Value value;
  value.expression = expression;
  return value;
}

const Expression* Operations::operand(const Call& call, size_t i) const {
  return call.has(i) && !call.input(i).is_cast ? call.input(i).expression : nullptr;
}

Value Operations::pointwise(const Call& call, const Expression* result) const {
  Value value = plain(result);
  value.order = call.input(0).order;
  return value;
}

bool Operations::operands(const Call& call, const Expression** a, const Expression** b) const {
  if (call.inputs.size() != 2) return false;
  *a = operand(call, 0);
  *b = operand(call, 1);
  return *a && *b && call.input(0).order == kInOrder && call.input(1).order == kInOrder;
}

std::optional<std::vector<int64_t>> Operations::axes_of(const Call& call, int64_t rank) const {
  std::vector<int64_t> axes;
  if (const onnx::AttributeProto* const attribute = find_attribute(call.node, "axes")) {
    axes.assign(attribute->ints().begin(), attribute->ints().end());
  } else if (call.has(1)) {
    if (!call.input(1).tensor) return std::nullopt;
    const auto values = read_integers(*call.input(1).tensor);
    if (!values) return std::nullopt;
    axes = *values;
  }
  for (int64_t& axis : axes) axis += axis < 0 ? rank : 0;
  return axes;
}

bool Operations::is_over_channels(const Call& call) const {
  return call.has(0) && call.input(0).order == kInOrder &&
         axes_of(call, 5) == std::vector<int64_t>{1};
}

std::optional<double> Operations::bound(const Call& call, size_t i, double otherwise) const {
  if (!call.has(i)) return otherwise;
  const Expression* const e = call.input(i).expression;
  if (!e || e->kind != Expression::kConstant) return std::nullopt;
  return e->value;
}

}  // namespace volup::onnx_file
