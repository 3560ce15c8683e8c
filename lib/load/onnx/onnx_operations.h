// SPDX-License-Identifier: Apache-2.0
//
// The operations that onnx_graph.cpp meets: what each does to expressions. What volup does not
// compute becomes Expression::kOther; the matcher of epilogues then names it.
#ifndef VOLUP_LOAD_ONNX_ONNX_OPERATIONS_H_
#define VOLUP_LOAD_ONNX_ONNX_OPERATIONS_H_

#include <onnx/onnx_pb.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "load/formula/expression.h"
#include "volup/volup.h"

namespace volup::onnx_file {

using formula::Expression;
using formula::ExpressionPool;
using formula::Site;

using AxisOrder = std::array<int64_t, 5>;
inline constexpr AxisOrder kInOrder = {0, 1, 2, 3, 4};

// What a name of the graph stands for.
struct Value {
  // Null for constants of more than one element.
  const Expression* expression = nullptr;
  const onnx::TensorProto* tensor = nullptr;  // a constant's
  AxisOrder order = kInOrder;                 // of axes, where they were transposed
  bool is_cast = false;  // from one float type to another, after something was computed
  std::string name;

  // Steps of logsumexp and softmax that are spelled out, of base over channels.
  enum Step { kNone, kMax, kShifted, kExp, kExpSum, kLogSum };
  Step step = kNone;
  const Expression* base = nullptr;
  bool is_shifted = false;  // the maximum was subtracted first
};

struct Convolution {
  const onnx::TensorProto* weight;
  const onnx::TensorProto* bias;  // null: none
  std::string weight_name, bias_name;
  volup_geometry geometry;
};

class Operations {
 public:
  // input_shapes: of the graph's inputs by their index, 0 for a size that the file does not say.
  Operations(ExpressionPool* pool, int64_t opset,
             const std::vector<std::vector<int64_t>>* input_shapes)
      : pool_(*pool), opset_(opset), input_shapes_(*input_shapes) {}

  Value of_input(int index, const std::string& name) const;
  Value of_constant(const onnx::TensorProto* tensor, const std::string& name) const;

  // The node's first output; inputs that are left out are empty values. others: how many it has.
  Value run(const onnx::NodeProto& node, const std::vector<Value>& inputs);

  std::vector<Convolution> convolutions;
  std::vector<std::string> notes;

 private:
  struct Call {
    const onnx::NodeProto& node;
    const std::vector<Value>& inputs;
    Site site;
    bool has(size_t i) const {
      return i < inputs.size() && (inputs[i].expression || inputs[i].tensor);
    }
    const Value& input(size_t i) const { return inputs[i]; }
  };
  using Handler = Value (Operations::*)(const Call&);
  static Handler find_handler(const std::string& name);

  Value unsuited(const Call& call, const std::string& reason = "") const;
  Value plain(const Expression* expression) const;
  void note(const std::string& text);
  // The first input as an expression that a pointwise function may take; null where it is none.
  const Expression* operand(const Call& call, size_t i = 0) const;
  // A pointwise function's result keeps the order of its input's axes.
  Value pointwise(const Call& call, const Expression* result) const;
  // Both inputs of an operation that broadcasts; false where they are not suited.
  bool operands(const Call& call, const Expression** a, const Expression** b) const;
  // The axes of a reduction or Unsqueeze, from 0 on; nothing where they are not constant.
  std::optional<std::vector<int64_t>> axes_of(const Call& call, int64_t rank) const;
  bool is_over_channels(const Call& call) const;
  std::optional<double> bound(const Call& call, size_t i, double otherwise) const;
  Value with_step(Value value, Value::Step step, const Value& from) const;
  const Expression* hard_sigmoid_of(const Expression* t, double alpha, double beta,
                                    const Site& site) const;

  Value add(const Call& call);
  Value sub(const Call& call);
  Value mul(const Call& call);
  Value div(const Call& call);
  Value neg(const Call& call);
  Value pow(const Call& call);
  Value reciprocal(const Call& call);
  Value minimum(const Call& call);
  Value maximum(const Call& call);
  Value sigmoid(const Call& call);
  Value relu(const Call& call);
  Value clip(const Call& call);
  Value hard_sigmoid(const Call& call);
  Value hard_swish(const Call& call);
  Value exp(const Call& call);
  Value log(const Call& call);
  Value reduce_max(const Call& call);
  Value reduce_sum(const Call& call);
  Value reduce_log_sum_exp(const Call& call);
  Value softmax(const Call& call);
  Value conv_transpose(const Call& call);
  Value same(const Call& call);
  Value dropout(const Call& call);
  Value cast(const Call& call);
  Value constant(const Call& call);
  Value transpose(const Call& call);
  Value unsqueeze(const Call& call);

  ExpressionPool& pool_;
  int64_t opset_;
  const std::vector<std::vector<int64_t>>& input_shapes_;
  // Constants that a node says by a number.
  std::map<std::string, onnx::TensorProto> made_;
};

}  // namespace volup::onnx_file

#endif  // VOLUP_LOAD_ONNX_ONNX_OPERATIONS_H_
