// SPDX-License-Identifier: Apache-2.0
//
// Follows forward() of a TorchScript module; see graph_reader.h. This file has control flow, calls
// and attributes; operations are in graph_operations.cpp.
#include "load/torchscript/graph_reader.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "load/module_support.h"
#include "load/torchscript/graph_operations.h"

namespace volup::torchscript {
namespace {

using module::refuse_unsupported;
using module::to_text;
using torch::jit::Block;
using torch::jit::Node;

// A model of this library needs tens; a hostile file doubles its calls at each level.
constexpr int kStepLimit = 100000;
constexpr int kDepthLimit = 64;

using Environment = std::unordered_map<const torch::jit::Value*, GraphValue>;

[[noreturn]] void refuse(const Site& site, const std::string& why, const std::string& needed) {
  refuse_unsupported("operation: got " + site.operation + (why.empty() ? "" : ", " + why) +
                     ", need " + needed + (site.where.empty() ? "" : " (" + site.where + ")"));
}

bool raises(const Block* block) {
  return std::any_of(block->nodes().begin(), block->nodes().end(),
                     [](const Node* node) { return node->kind() == c10::prim::RaiseException; });
}

// Contexts that change no number: torch.no_grad() and its opposite.
bool is_gradient_context(const torch::jit::Value* value) {
  const auto type = value->type()->cast<c10::ClassType>();
  if (!type || !type->name()) return false;
  const std::string name = type->name()->qualifiedName();
  return name == "__torch__.torch.autograd.grad_mode.no_grad" ||
         name == "__torch__.torch.autograd.grad_mode.enable_grad";
}

class Reader {
 public:
  Reader(ExpressionPool* pool, GraphFacts* facts) : operations_(pool), facts_(facts) {}

  void read(const torch::jit::Module& module, bool optional_given, ExpressionPool* pool);

 private:
  GraphValue argument_value(const c10::Argument& argument, bool optional_given,
                            ExpressionPool* pool);
  std::vector<GraphValue> call(const torch::jit::Graph& graph, std::vector<GraphValue> inputs,
                               const Site& site);
  std::vector<GraphValue> run_block(const Block* block, Environment* environment);
  void run_node(const Node* node, Environment* environment);
  std::vector<GraphValue> evaluate(const Node* node, Environment* environment);
  std::vector<GraphValue> call_method(const Node* node, std::vector<GraphValue> inputs);
  std::vector<GraphValue> call_function(const Node* node, std::vector<GraphValue> inputs);
  std::vector<GraphValue> run_if(const Node* node, const GraphValue& condition,
                                 Environment* environment);
  std::vector<GraphValue> run_loop(const Node* node, std::vector<GraphValue> inputs,
                                   Environment* environment);
  std::vector<GraphValue> compare_to_none(const Node* node, std::vector<GraphValue> inputs);
  static GraphValue constant_of(const Node* node);
  static GraphValue attribute_of(const Node* node, const GraphValue& object);
  static GraphValue several(const Node* node, std::vector<GraphValue> inputs);
  static std::vector<GraphValue> take_apart(const Node* node, const GraphValue& whole);

  Operations operations_;
  GraphFacts* facts_;
  int steps_ = 0;
  int depth_ = 0;
};

void Reader::read(const torch::jit::Module& module, bool optional_given, ExpressionPool* pool) {
  const auto method = module.find_method("forward");
  if (!method) refuse_unsupported("method: got no forward, need a module with one");
  if (!module.type()->getForwardHooks().empty() || !module.type()->getForwardPreHooks().empty()) {
    refuse_unsupported("hooks: got a module with forward hooks, need one without");
  }
  const c10::FunctionSchema& schema = method->function().getSchema();
  std::vector<GraphValue> inputs = {GraphValue::of(module._ivalue())};
  for (size_t i = 1; i < schema.arguments().size(); ++i) {
    inputs.push_back(argument_value(schema.arguments()[i], optional_given, pool));
  }
  auto outputs = call(*torch::jit::toGraphFunction(method->function()).graph(), std::move(inputs),
                      {"forward", ""});
  if (outputs.size() != 1 || outputs[0].kind != GraphValue::kTensor) {
    const bool is_tuple = outputs.size() == 1 && outputs[0].kind == GraphValue::kSeveral;
    refuse_unsupported("result of forward: got " +
                       (is_tuple ? to_text(outputs[0].members.size()) + " values in a tuple or list"
                                 : std::string("something that is not computed from its inputs")) +
                       ", need one tensor");
  }
  facts_->result = operations_.read(outputs[0]);
  facts_->convolutions = std::move(operations_.convolutions);
  facts_->used = std::move(operations_.used);
}

GraphValue Reader::argument_value(const c10::Argument& argument, bool optional_given,
                                  ExpressionPool* pool) {
  const auto tensor_argument = [&] {
    GraphValue value = operations_.fresh(pool->input(static_cast<int>(facts_->arguments.size())));
    value.cell->is_argument = true;
    facts_->arguments.push_back(argument.name());
    return value;
  };
  if (argument.type()->kind() == c10::TypeKind::TensorType) return tensor_argument();
  const auto optional = argument.type()->cast<c10::OptionalType>();
  if (optional && optional->getElementType()->kind() == c10::TypeKind::TensorType) {
    return optional_given ? tensor_argument() : GraphValue::of(c10::IValue());
  }
  if (argument.default_value()) return GraphValue::of(*argument.default_value());
  return GraphValue();
}

std::vector<GraphValue> Reader::call(const torch::jit::Graph& graph, std::vector<GraphValue> inputs,
                                     const Site& site) {
  if (++depth_ > kDepthLimit)
    refuse(site, "the " + to_text(kDepthLimit) + "th call inside a call", "fewer");
  if (inputs.size() != graph.inputs().size()) {
    refuse(site, "with another number of arguments", "as many as it takes");
  }
  Environment environment;
  for (size_t i = 0; i < inputs.size(); ++i) {
    environment[graph.inputs()[i]] = std::move(inputs[i]);
  }
  auto outputs = run_block(graph.block(), &environment);
  --depth_;
  return outputs;
}

std::vector<GraphValue> Reader::run_block(const Block* block, Environment* environment) {
  for (const Node* node : block->nodes()) run_node(node, environment);
  std::vector<GraphValue> outputs;
  for (const auto* output : block->outputs()) outputs.push_back((*environment)[output]);
  return outputs;
}

void Reader::run_node(const Node* node, Environment* environment) {
  if (++steps_ > kStepLimit) {
    refuse(site_of(node), "after " + to_text(kStepLimit) + " others", "a shorter forward");
  }
  std::vector<GraphValue> outputs = evaluate(node, environment);
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    (*environment)[node->outputs()[i]] = i < outputs.size() ? std::move(outputs[i]) : GraphValue();
  }
}

std::vector<GraphValue> Reader::evaluate(const Node* node, Environment* environment) {
  std::vector<GraphValue> inputs;
  for (const auto* input : node->inputs()) inputs.push_back((*environment)[input]);
  const auto kind = node->kind();
  const bool is_context = kind == c10::prim::Enter || kind == c10::prim::Exit;
  if ((is_context || kind == c10::prim::CallMethod) && is_gradient_context(node->input(0))) {
    return {};
  }
  if (is_context) refuse(site_of(node), "a context", "no context but torch.no_grad()");
  if (kind == c10::prim::Constant) return {constant_of(node)};
  if (kind == c10::prim::GetAttr) return {attribute_of(node, inputs[0])};
  if (kind == c10::prim::CallMethod) return call_method(node, std::move(inputs));
  if (kind == c10::prim::CallFunction) return call_function(node, std::move(inputs));
  if (kind == c10::prim::If) return run_if(node, inputs[0], environment);
  if (kind == c10::prim::Loop) return run_loop(node, std::move(inputs), environment);
  if (kind == c10::prim::ListConstruct || kind == c10::prim::TupleConstruct) {
    return {several(node, std::move(inputs))};
  }
  if (kind == c10::prim::ListUnpack || kind == c10::prim::TupleUnpack) {
    return take_apart(node, inputs[0]);
  }
  if (kind == c10::prim::TupleIndex || kind == c10::aten::__getitem__) {
    const bool picks = inputs[0].kind == GraphValue::kSeveral &&
                       inputs[1].kind == GraphValue::kKnown && inputs[1].known.isInt();
    if (picks) {
      const int64_t size = static_cast<int64_t>(inputs[0].members.size());
      const int64_t index = inputs[1].known.toInt();
      const int64_t at = index < 0 ? index + size : index;
      if (at >= 0 && at < size) return {inputs[0].members[static_cast<size_t>(at)]};
    }
    // One of a list that volup does not compute.
    if (inputs[0].kind == GraphValue::kTensor) return {inputs[0]};
  }
  if (kind == c10::prim::unchecked_cast || kind == c10::prim::unchecked_unwrap_optional ||
      kind == c10::aten::_unwrap_optional) {
    return {inputs[0]};
  }
  if (kind == c10::aten::__is__ || kind == c10::aten::__isnot__) {
    return compare_to_none(node, std::move(inputs));
  }
  if (kind == c10::prim::Print || kind == c10::aten::warn || kind == c10::prim::Uninitialized) {
    return {};
  }
  if (kind == c10::prim::RaiseException) {
    refuse(site_of(node), "an exception that forward always raises", "a forward that returns");
  }
  if (kind == c10::prim::SetAttr) {
    refuse(site_of(node), "which changes the module", "a module that stays as it is");
  }
  return operations_.run(node, std::move(inputs));
}

GraphValue Reader::constant_of(const Node* node) {
  if (node->output()->type()->kind() == c10::TypeKind::FunctionType) return GraphValue();
  const auto value = torch::jit::toIValue(node->output());
  return value ? GraphValue::of(*value) : GraphValue();
}

GraphValue Reader::attribute_of(const Node* node, const GraphValue& object) {
  if (object.kind != GraphValue::kKnown || !object.known.isObject()) return GraphValue();
  const std::string& name = node->s(c10::attr::name);
  const std::string path = object.path.empty() ? name : object.path + "." + name;
  return GraphValue::of(object.known.toObject()->getAttr(name), path);
}

std::vector<GraphValue> Reader::call_method(const Node* node, std::vector<GraphValue> inputs) {
  const Site site = site_of(node);
  const std::string& name = node->s(c10::attr::name);
  if (inputs[0].kind != GraphValue::kKnown || !inputs[0].known.isObject()) {
    refuse(site, "of an object made at run time", "methods of the module's own parts");
  }
  torch::jit::Function* const method = inputs[0].known.toObject()->type()->findMethod(name);
  auto* const function = method ? torch::jit::tryToGraphFunction(*method) : nullptr;
  if (!function) refuse(site, "method " + name, "methods that TorchScript defines");
  return call(*function->graph(), std::move(inputs), site);
}

std::vector<GraphValue> Reader::call_function(const Node* node, std::vector<GraphValue> inputs) {
  const Site site = site_of(node);
  const auto type = node->input(0)->type()->cast<c10::FunctionType>();
  auto* const function = type ? torch::jit::tryToGraphFunction(*type->function()) : nullptr;
  if (!function) refuse(site, "", "functions that TorchScript defines");
  inputs.erase(inputs.begin());
  return call(*function->graph(), std::move(inputs), site);
}

std::vector<GraphValue> Reader::run_if(const Node* node, const GraphValue& condition,
                                       Environment* environment) {
  const Block* const on_true = node->blocks()[0];
  const Block* const on_false = node->blocks()[1];
  if (condition.kind == GraphValue::kKnown && condition.known.isBool()) {
    return run_block(condition.known.toBool() ? on_true : on_false, environment);
  }
  // A check of the input: volup has its own.
  if (raises(on_true) != raises(on_false)) {
    const Site site = site_of(node);
    facts_->notes.push_back("a check at run time is left out" +
                            (site.where.empty() ? std::string() : " (" + site.where + ")"));
    return run_block(raises(on_true) ? on_false : on_true, environment);
  }
  if (condition.cause) {
    refuse(condition.cause->site, condition.cause->why, "an operation that volup computes");
  }
  refuse(site_of(node), "on a value known only at run time",
         "branches that the file's constants decide");
}

std::vector<GraphValue> Reader::run_loop(const Node* node, std::vector<GraphValue> inputs,
                                         Environment* environment) {
  const auto is_true = [](const GraphValue& value) -> std::optional<bool> {
    if (value.kind != GraphValue::kKnown || !value.known.isBool()) return std::nullopt;
    return value.known.toBool();
  };
  const Block* const body = node->blocks()[0];
  if (inputs[0].kind != GraphValue::kKnown || !inputs[0].known.isInt()) {
    refuse(site_of(node), "over a number of times known only at run time", "a constant number");
  }
  const int64_t trips = inputs[0].known.toInt();
  std::vector<GraphValue> state(inputs.begin() + 1, inputs.end());  // condition, carried values
  for (int64_t trip = 0; trip < trips; ++trip) {
    const auto goes_on = is_true(state[0]);
    if (!goes_on) refuse(site_of(node), "while a value known only at run time", "a constant one");
    if (!*goes_on) break;
    if (++steps_ > kStepLimit) refuse(site_of(node), "of too many rounds", "fewer");
    (*environment)[body->inputs()[0]] = GraphValue::of(trip);
    for (size_t i = 1; i < state.size(); ++i) (*environment)[body->inputs()[i]] = state[i];
    state = run_block(body, environment);
  }
  state.erase(state.begin());
  return state;
}

std::vector<GraphValue> Reader::compare_to_none(const Node* node, std::vector<GraphValue> inputs) {
  const auto is_something = [](const GraphValue& value) {
    return value.kind == GraphValue::kTensor || value.kind == GraphValue::kSeveral ||
           (value.kind == GraphValue::kKnown && !value.known.isNone());
  };
  const bool wants_same = node->kind() == c10::aten::__is__;
  if (inputs[0].is_none() && inputs[1].is_none()) return {GraphValue::of(wants_same)};
  if ((inputs[0].is_none() && is_something(inputs[1])) ||
      (inputs[1].is_none() && is_something(inputs[0]))) {
    return {GraphValue::of(!wants_same)};
  }
  return {GraphValue()};
}

GraphValue Reader::several(const Node* node, std::vector<GraphValue> inputs) {
  const auto list = node->output()->type()->cast<c10::ListType>();
  const bool all_known = std::all_of(inputs.begin(), inputs.end(), [](const GraphValue& value) {
    return value.kind == GraphValue::kKnown && !value.known.isTensor();
  });
  if (list && all_known) {
    c10::impl::GenericList values(list->getElementType());
    for (const GraphValue& input : inputs) values.push_back(input.known);
    return GraphValue::of(c10::IValue(values));
  }
  GraphValue out;
  out.kind = GraphValue::kSeveral;
  out.members = std::move(inputs);
  return out;
}

std::vector<GraphValue> Reader::take_apart(const Node* node, const GraphValue& whole) {
  const size_t count = node->outputs().size();
  if (whole.kind == GraphValue::kSeveral && whole.members.size() == count) return whole.members;
  // Parts of what volup does not compute.
  if (whole.kind == GraphValue::kTensor) return std::vector<GraphValue>(count, whole);
  std::vector<GraphValue> outputs(count);
  if (whole.kind != GraphValue::kKnown) return outputs;
  std::vector<c10::IValue> values;
  if (whole.known.isTuple()) {
    for (const c10::IValue& value : whole.known.toTupleRef().elements()) values.push_back(value);
  } else if (whole.known.isList()) {
    for (const c10::IValue& value : whole.known.toListRef()) values.push_back(value);
  }
  for (size_t i = 0; i < count && values.size() == count; ++i) {
    outputs[i] = GraphValue::of(values[i], whole.path + "." + to_text(i));
  }
  return outputs;
}

// A traced file keeps the Python stack, innermost frame first, as lines "model.py(12): forward".
// The first frame outside PyTorch itself is the one its author knows.
std::optional<std::string> traced_place(const std::string& text) {
  std::optional<std::string> innermost;
  for (const std::string& line : module::split_lines(text.c_str())) {
    const size_t close = line.find("): "), open = line.rfind('(', close);
    if (close == std::string::npos || open == std::string::npos || open == 0) break;
    const std::string number = line.substr(open + 1, close - open - 1);
    if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) break;
    const std::string place = line.substr(0, open) + ":" + number;
    if (place.find("/site-packages/torch/") == std::string::npos) return place;
    if (!innermost) innermost = place;
  }
  return innermost;
}

std::optional<std::string> place_of(const torch::jit::SourceRange& range) {
  if (!range.source()) return std::nullopt;
  if (const auto place = range.file_line_col()) {
    if (!std::get<0>(*place).empty()) {
      return std::get<0>(*place) + ":" + to_text(std::get<1>(*place));
    }
  }
  return traced_place(range.text().str());
}

}  // namespace

Site site_of(const Node* node) {
  Site site{node->kind().toQualString(), ""};
  const torch::jit::SourceRange range = node->sourceRange();
  if (const auto original = range.findSourceRangeThatGenerated()) {
    site.where = place_of(*original).value_or("");
  }
  if (site.where.empty()) site.where = place_of(range).value_or("");
  return site;
}

GraphFacts read_graph(const torch::jit::Module& module, bool optional_given, ExpressionPool* pool) {
  GraphFacts facts;
  Reader(pool, &facts).read(module, optional_given, pool);
  return facts;
}

}  // namespace volup::torchscript
