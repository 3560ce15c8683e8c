// SPDX-License-Identifier: Apache-2.0
//
// What a value of a TorchScript graph is while the graph is read: known, a tensor with an
// expression, several values, or known only at run time.
#ifndef VOLUP_LOAD_TORCHSCRIPT_GRAPH_VALUES_H_
#define VOLUP_LOAD_TORCHSCRIPT_GRAPH_VALUES_H_

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <string>
#include <vector>

#include "load/formula/expression.h"
#include "volup/volup.h"

namespace volup::torchscript {

using formula::Expression;
using formula::ExpressionPool;
using formula::Site;

// The content of a tensor. Values that alias share one cell, so what is done in place to one is
// seen through all; a view of another shape has a cell of its own and knows its base.
struct Cell {
  const Expression* expression = nullptr;
  bool is_argument = false;
  int version = 0;
  std::shared_ptr<Cell> base;
  int base_version = 0;
};

struct GraphValue {
  enum Kind { kRuntime, kKnown, kTensor, kSeveral };
  Kind kind = kRuntime;
  c10::IValue known;                  // kKnown
  std::string path;                   // kKnown: attribute it came from, "conv.weight"
  std::shared_ptr<Cell> cell;         // kTensor
  std::vector<GraphValue> members;    // kSeveral
  bool is_shape = false;              // kRuntime: the shape of a tensor that has 5 axes
  const Expression* cause = nullptr;  // kRuntime: the first kOther that it depends on

  static GraphValue of(c10::IValue value, std::string path = "") {
    GraphValue out;
    out.kind = kKnown;
    out.known = std::move(value);
    out.path = std::move(path);
    return out;
  }
  bool is_none() const { return kind == kKnown && known.isNone(); }
  bool is_known_tensor() const { return kind == kKnown && known.isTensor(); }
  bool is_known_number() const {
    return kind == kKnown && (known.isInt() || known.isDouble() || known.isBool());
  }
};

// A transposed convolution that was met, with the tensors it uses.
struct Convolution {
  volup_geometry geometry{};
  at::Tensor weight, bias;
  bool has_bias = false;
};

// Name and place of a node for messages.
Site site_of(const torch::jit::Node* node);

}  // namespace volup::torchscript

#endif  // VOLUP_LOAD_TORCHSCRIPT_GRAPH_VALUES_H_
