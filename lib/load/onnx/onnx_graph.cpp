// SPDX-License-Identifier: Apache-2.0
//
// Follows an ONNX graph; see onnx_graph.h. Nodes are in an order in which each comes after those it
// takes values from, as ONNX demands.
#include "load/onnx/onnx_graph.h"

#include <algorithm>
#include <map>
#include <set>

#include "load/formula/epilogue_match.h"
#include "load/onnx/onnx_operations.h"
#include "load/onnx/onnx_tensor.h"

namespace volup::onnx_file {
namespace {

using module::list_text;
using module::LoadedModel;
using module::quoted;
using module::refuse_unreadable;
using module::refuse_unsupported;
using module::to_text;

int64_t opset_of(const onnx::ModelProto& model) {
  int64_t opset = 0;
  for (const onnx::OperatorSetIdProto& each : model.opset_import()) {
    if (each.domain().empty() || each.domain() == "ai.onnx") opset = each.version();
  }
  if (opset < kOldestOpset || opset > kNewestOpset) {
    refuse_unsupported("opset: got " + (opset == 0 ? "none of ONNX's" : to_text(opset)) +
                       ", need " + to_text(kOldestOpset) + " to " + to_text(kNewestOpset));
  }
  return opset;
}

// 0 for a size that the file does not say; empty where it says no shape.
std::vector<int64_t> shape_of_input(const onnx::ValueInfoProto& input) {
  const auto& type = input.type().tensor_type();
  std::vector<int64_t> shape;
  for (const auto& dim : type.shape().dim()) {
    shape.push_back(dim.has_dim_value() && dim.dim_value() > 0 ? dim.dim_value() : 0);
  }
  return shape;
}

class Reader {
 public:
  explicit Reader(const onnx::ModelProto& model)
      : model_(model), graph_(model.graph()), operations_(&pool_, opset_of(model), &shapes_) {}

  LoadedModel run() {
    if (graph_.sparse_initializer_size() > 0) {
      refuse_unsupported("initializer: got a sparse one, need dense ones");
    }
    read_inputs();
    for (const onnx::NodeProto& node : graph_.node()) follow(node);
    if (graph_.output_size() != 1) {
      refuse_unsupported("outputs: got " + to_text(graph_.output_size()) + ", need one");
    }
    const Value& result = value_of(graph_.output(0).name(), "the output");
    if (!result.expression || result.order != kInOrder) {
      refuse_unsupported("output " + quoted(graph_.output(0).name()) +
                         ": got a constant or transposed axes, need the block's result");
    }
    const formula::EpilogueMatch match = formula::match_epilogue(result.expression);
    check_inputs(match);
    return take(match);
  }

 private:
  // Until IR version 4 initializers are inputs too.
  void read_inputs() {
    for (const onnx::TensorProto& tensor : graph_.initializer()) {
      define(tensor.name(), operations_.of_constant(&tensor, tensor.name()));
    }
    for (const onnx::ValueInfoProto& input : graph_.input()) {
      if (values_.count(input.name()) > 0) continue;
      const int index = static_cast<int>(names_.size());
      names_.push_back(input.name());
      shapes_.push_back(shape_of_input(input));
      define(input.name(), operations_.of_input(index, input.name()));
    }
  }

  void define(const std::string& name, Value value) {
    if (name.empty()) return;
    if (!values_.emplace(name, std::move(value)).second) {
      refuse_unreadable("value " + quoted(name) + ": got two of that name, need one");
    }
  }

  const Value& value_of(const std::string& name, const std::string& user) {
    const auto found = values_.find(name);
    if (found == values_.end()) {
      refuse_unreadable("value " + quoted(name) + ": got none of that name, need it before " +
                        user);
    }
    used_.insert(name);
    return found->second;
  }

  void follow(const onnx::NodeProto& node) {
    std::vector<Value> inputs;
    for (const std::string& name : node.input()) {
      inputs.push_back(name.empty() ? Value{} : value_of(name, "node " + quoted(node.name())));
    }
    const Value result = operations_.run(node, inputs);
    for (int i = 0; i < node.output_size(); ++i) {
      // What else a node gives, a mask or indices, volup does not compute.
      define(node.output(i), i == 0 ? result : other_output(node, inputs));
    }
  }

  Value other_output(const onnx::NodeProto& node, const std::vector<Value>& inputs) {
    onnx::NodeProto unknown;
    unknown.set_name(node.name());
    unknown.set_op_type(node.op_type());
    unknown.set_domain("another output of");
    return operations_.run(unknown, inputs);
  }

  // Every input has its place, and what is added has the shape of what it is added to.
  void check_inputs(const formula::EpilogueMatch& match) {
    for (size_t i = 0; i < names_.size(); ++i) {
      const int index = static_cast<int>(i);
      if (index != match.x && index != match.add) {
        refuse_unsupported("input " + quoted(names_[i]) +
                           ": got one that the block does not use, need none");
      }
    }
    const std::vector<int64_t>& x = shapes_[static_cast<size_t>(match.x)];
    if (!x.empty() && x.size() != 5) {
      refuse_unsupported("input " + quoted(names_[static_cast<size_t>(match.x)]) + ": got shape " +
                         list_text(x) + ", need five axes");
    }
    if (match.add < 0) return;
    const std::vector<int64_t>& add = shapes_[static_cast<size_t>(match.add)];
    const volup_geometry& g =
        operations_.convolutions[static_cast<size_t>(match.convolution)].geometry;
    bool fits = add.empty() || add.size() == 5;
    for (size_t i = 0; fits && i < add.size(); ++i) {
      const int64_t from_x = x.empty() ? 0 : x[i];
      int64_t need = from_x;  // 0: not known
      if (i == 1) need = g.out_channels;
      if (i >= 2 && from_x > 0) {
        need = (from_x - 1) * g.stride[i - 2] - g.padding_begin[i - 2] - g.padding_end[i - 2] +
               g.dilation[i - 2] * (g.kernel[i - 2] - 1) + g.output_padding[i - 2] + 1;
      }
      // A size of 1 against one that is not known would be a broadcast more often than not.
      fits = add[i] == 0 || (need > 0 ? add[i] == need : add[i] != 1);
    }
    if (!fits) {
      refuse_unsupported("input " + quoted(names_[static_cast<size_t>(match.add)]) +
                         ": got shape " + list_text(add) +
                         ", need that of the convolution's result (0 stands for any size)");
    }
  }

  // The model is the caller's to take from; nothing looks at the tensor afterwards.
  static module::Floats take(const onnx::TensorProto& tensor) {
    return take_floats(const_cast<onnx::TensorProto*>(&tensor));
  }

  LoadedModel take(const formula::EpilogueMatch& match) {
    const Convolution& convolution =
        operations_.convolutions[static_cast<size_t>(match.convolution)];
    LoadedModel model;
    model.kind = "onnx";
    model.producer = model_.producer_name();
    if (!model_.producer_version().empty()) model.producer += " " + model_.producer_version();
    for (char& c : model.producer) c = static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    model.geometry = convolution.geometry;
    model.epilogue = match.epilogue;
    model.weight_dtype = float_name(*convolution.weight);
    model.weight = take(*convolution.weight);
    model.weight_name = convolution.weight_name;
    if (convolution.bias) {
      const std::vector<int64_t> shape = shape_of(*convolution.bias);
      if (shape != std::vector<int64_t>{model.geometry.out_channels}) {
        refuse_unsupported("shape of the bias: got " + list_text(shape) + ", need [" +
                           to_text(model.geometry.out_channels) + "] (tensor " +
                           quoted(convolution.bias_name) + ")");
      }
      model.bias = take(*convolution.bias);
      model.bias_name = convolution.bias_name;
      model.has_bias = true;
    }
    for (const onnx::TensorProto& tensor : graph_.initializer()) {
      if (used_.count(tensor.name()) == 0) model.unused.push_back(quoted(tensor.name()));
    }
    for (const std::string& text : match.notes) model.note(text);
    for (const std::string& text : operations_.notes) model.note(text);
    return model;
  }

  const onnx::ModelProto& model_;
  const onnx::GraphProto& graph_;
  formula::ExpressionPool pool_;
  std::vector<std::vector<int64_t>> shapes_;
  Operations operations_;
  std::vector<std::string> names_;  // of the inputs
  std::map<std::string, Value> values_;
  std::set<std::string> used_;
};

}  // namespace

LoadedModel read_onnx(onnx::ModelProto* model) { return Reader(*model).run(); }

}  // namespace volup::onnx_file
