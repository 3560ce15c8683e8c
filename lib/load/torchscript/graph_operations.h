// SPDX-License-Identifier: Apache-2.0
//
// The operations that graph_reader.cpp meets: what each does to expressions. No tensor operation
// of the module runs here; what volup does not compute becomes Expression::kOther.
#ifndef VOLUP_LOAD_TORCHSCRIPT_GRAPH_OPERATIONS_H_
#define VOLUP_LOAD_TORCHSCRIPT_GRAPH_OPERATIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "load/torchscript/graph_values.h"

namespace volup::torchscript {

// One operation with its inputs; arguments are found by the names of its schema.
class Call {
 public:
  Call(const torch::jit::Node* node, std::vector<GraphValue> inputs);

  const torch::jit::Node* node;
  std::vector<GraphValue> inputs;
  Site site;

  // Null where the schema has no such argument.
  const GraphValue* find(const char* name) const;
  std::optional<int64_t> integer(const char* name) const;
  std::optional<double> number(const char* name) const;
  std::optional<bool> boolean(const char* name) const;
  // Integers of a list argument; one integer is a list of one.
  std::optional<std::vector<int64_t>> integers(const char* name) const;
};

class Operations {
 public:
  explicit Operations(ExpressionPool* pool) : pool_(*pool) {}

  // Values of the node's outputs.
  std::vector<GraphValue> run(const torch::jit::Node* node, std::vector<GraphValue> inputs);

  GraphValue fresh(const Expression* expression) const;
  const Expression* read(const GraphValue& tensor);

  std::vector<Convolution> convolutions;
  std::vector<at::Tensor> used;  // constants of one element that went into expressions

 private:
  using Handler = GraphValue (Operations::*)(const Call&);
  static Handler find_handler(const std::string& name);

  std::vector<GraphValue> run_tensors(const Call& call, const std::string& name);
  std::vector<GraphValue> run_scalars(const Call& call, const std::string& name);
  std::vector<GraphValue> unknown_outputs(const Call& call);
  // The first operation that volup does not compute among those the inputs come from, or null.
  const Expression* cause_of(const Call& call);
  void write(const GraphValue& tensor, const Expression* expression, const Site& site);
  // The operand as an expression; null where it is none.
  const Expression* operand(const GraphValue* value);
  const Expression* self(const Call& call) { return operand(&call.inputs[0]); }
  // Adds the expressions of a tensor, or of the tensors in a list.
  void collect(const GraphValue& value, std::vector<const Expression*>* tensors);
  // An expression of kind kOther for a call that volup does not compute.
  GraphValue unsuited(const Call& call, std::string why = "");
  const Expression* hardsigmoid_of(const Expression* t, const Site& site);
  GraphValue clamp_between(const Call& call, double low, double high);
  GraphValue convolution(const Call& call, const std::vector<int64_t>& dilation);

  GraphValue add(const Call& call);
  GraphValue sub(const Call& call);
  GraphValue rsub(const Call& call);
  GraphValue mul(const Call& call);
  GraphValue div(const Call& call);
  GraphValue reciprocal(const Call& call);
  GraphValue neg(const Call& call);
  GraphValue square(const Call& call);
  GraphValue pow(const Call& call);
  GraphValue sigmoid(const Call& call);
  GraphValue exp(const Call& call);
  GraphValue silu(const Call& call);
  GraphValue hardswish(const Call& call);
  GraphValue hardsigmoid(const Call& call);
  GraphValue relu(const Call& call);
  GraphValue relu6(const Call& call);
  GraphValue clamp(const Call& call);
  GraphValue clamp_min(const Call& call);
  GraphValue clamp_max(const Call& call);
  GraphValue hardtanh(const Call& call);
  GraphValue minimum(const Call& call);
  GraphValue maximum(const Call& call);
  GraphValue softmax(const Call& call);
  GraphValue logsumexp(const Call& call);
  GraphValue conv_transpose3d(const Call& call);
  GraphValue general_convolution(const Call& call);
  GraphValue same(const Call& call);
  GraphValue copy(const Call& call);
  GraphValue convert(const Call& call);
  GraphValue dropout(const Call& call);
  GraphValue expand(const Call& call);
  GraphValue reshape(const Call& call);
  GraphValue unsqueeze(const Call& call);
  GraphValue to_scalar(const Call& call);
  GraphValue from_scalar(const Call& call);
  GraphValue dim(const Call& call);
  GraphValue shape(const Call& call);
  GraphValue is_true(const Call& call);

  ExpressionPool& pool_;
};

}  // namespace volup::torchscript

#endif  // VOLUP_LOAD_TORCHSCRIPT_GRAPH_OPERATIONS_H_
