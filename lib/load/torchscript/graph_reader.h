// SPDX-License-Identifier: Apache-2.0
//
// Follows forward() of a TorchScript module, through every call it makes, and finds what it
// returns as an expression of its inputs. It decides branches on what is known (constants,
// attributes, absent arguments) and runs no tensor operation.
#ifndef VOLUP_LOAD_TORCHSCRIPT_GRAPH_READER_H_
#define VOLUP_LOAD_TORCHSCRIPT_GRAPH_READER_H_

#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "load/torchscript/graph_values.h"

namespace volup::torchscript {

struct GraphFacts {
  const Expression* result = nullptr;
  std::vector<std::string> arguments;  // names of forward's tensors, by index
  std::vector<Convolution> convolutions;
  std::vector<at::Tensor> used;  // constants of one element that went into expressions
  std::vector<std::string> notes;
};

// Reads forward with its optional tensor arguments given, or left out. Throws module::Refusal
// UNSUPPORTED where forward cannot be followed.
GraphFacts read_graph(const torch::jit::Module& module, bool optional_given, ExpressionPool* pool);

}  // namespace volup::torchscript

#endif  // VOLUP_LOAD_TORCHSCRIPT_GRAPH_READER_H_
