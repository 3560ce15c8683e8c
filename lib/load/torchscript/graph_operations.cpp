// SPDX-License-Identifier: Apache-2.0
//
// How an operation is run on values; see graph_operations.h. The table at the end is the list of
// what is understood, the functions it names are in graph_functions.cpp.
#include "load/torchscript/graph_operations.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "load/module_support.h"
#include "load/torchscript/tensor_access.h"

namespace volup::torchscript {
namespace {

using module::refuse_unsupported;
using module::to_text;
using torch::jit::Node;

std::optional<double> number_of(const c10::IValue& value) {
  if (value.isDouble()) return value.toDouble();
  if (value.isInt()) return static_cast<double>(value.toInt());
  if (value.isBool()) return value.toBool() ? 1.0 : 0.0;
  return std::nullopt;
}

// Scalar and list operations that may be folded by running them: no tensors, no effects, no output
// larger than their inputs together.
bool may_fold(const std::string& name) {
  static const std::unordered_set<std::string_view> kNames = {
      "aten::add",      "aten::sub",         "aten::mul",         "aten::div",
      "aten::floordiv", "aten::remainder",   "aten::neg",         "aten::pow",
      "aten::eq",       "aten::ne",          "aten::lt",          "aten::le",
      "aten::gt",       "aten::ge",          "aten::__not__",     "aten::__and__",
      "aten::__or__",   "aten::__xor__",     "aten::__is__",      "aten::__isnot__",
      "aten::len",      "aten::__getitem__", "aten::slice",       "aten::__contains__",
      "aten::Int",      "aten::Float",       "aten::Bool",        "aten::str",
      "aten::sqrt",     "aten::exp",         "aten::log",         "aten::floor",
      "aten::ceil",     "aten::abs",         "prim::abs",         "prim::min",
      "prim::max",      "aten::list",        "aten::IntImplicit", "aten::FloatImplicit"};
  return kNames.count(name) > 0;
}

bool is_plain_scalar(const c10::IValue& value) {
  return value.isInt() || value.isDouble() || value.isBool() || value.isString() ||
         value.isNone() || value.isIntList() || value.isDoubleList() || value.isBoolList();
}

}  // namespace

// ---- Call ------------------------------------------------------------------------------------

Call::Call(const Node* call_node, std::vector<GraphValue> call_inputs)
    : node(call_node), inputs(std::move(call_inputs)), site(site_of(call_node)) {}

const GraphValue* Call::find(const char* name) const {
  const c10::FunctionSchema* const schema = node->maybeSchema();
  if (!schema) return nullptr;
  const auto index = schema->argumentIndexWithName(name);
  return index && static_cast<size_t>(*index) < inputs.size() ? &inputs[static_cast<size_t>(*index)]
                                                              : nullptr;
}

std::optional<int64_t> Call::integer(const char* name) const {
  const GraphValue* const value = find(name);
  if (!value || value->kind != GraphValue::kKnown || !value->known.isInt()) return std::nullopt;
  return value->known.toInt();
}

std::optional<double> Call::number(const char* name) const {
  const GraphValue* const value = find(name);
  return value && value->kind == GraphValue::kKnown ? number_of(value->known) : std::nullopt;
}

std::optional<bool> Call::boolean(const char* name) const {
  const GraphValue* const value = find(name);
  if (!value || value->kind != GraphValue::kKnown || !value->known.isBool()) return std::nullopt;
  return value->known.toBool();
}

std::optional<std::vector<int64_t>> Call::integers(const char* name) const {
  const GraphValue* const value = find(name);
  if (!value || value->kind != GraphValue::kKnown) return std::nullopt;
  if (value->known.isInt()) return std::vector<int64_t>{value->known.toInt()};
  if (!value->known.isIntList()) return std::nullopt;
  return value->known.toIntVector();
}

// ---- Cells -----------------------------------------------------------------------------------

GraphValue Operations::fresh(const Expression* expression) const {
  GraphValue value;
  value.kind = GraphValue::kTensor;
  value.cell = std::make_shared<Cell>();
  value.cell->expression = expression;
  return value;
}

const Expression* Operations::read(const GraphValue& tensor) {
  Cell& cell = *tensor.cell;
  if (cell.base && cell.base->version != cell.base_version) {
    cell.expression = pool_.other({cell.expression, cell.base->expression},
                                  "of which a view is read after it was changed in place",
                                  cell.base->expression->site);
    cell.base.reset();
  }
  return cell.expression;
}

void Operations::write(const GraphValue& tensor, const Expression* expression, const Site& site) {
  for (std::shared_ptr<Cell> cell = tensor.cell; cell; cell = cell->base) {
    if (cell->is_argument) {
      refuse_unsupported("operation: got " + site.operation +
                         ", which changes an input of forward, need inputs left as they are" +
                         (site.where.empty() ? "" : " (" + site.where + ")"));
    }
    if (cell != tensor.cell) {
      expression = pool_.other({cell->expression}, "in place on a part of a tensor", site);
    }
    cell->expression = expression;
    ++cell->version;
    if (cell->base && cell == tensor.cell) cell->base_version = cell->base->version + 1;
  }
}

const Expression* Operations::operand(const GraphValue* value) {
  if (!value) return nullptr;
  if (value->kind == GraphValue::kTensor) return read(*value);
  if (value->kind != GraphValue::kKnown) return nullptr;
  if (const auto number = number_of(value->known)) return pool_.constant(*number);
  if (!value->is_known_tensor()) return nullptr;
  const at::Tensor& tensor = value->known.toTensor();
  // More axes than the activation's five would give the result more.
  if (tensor.dim() > 5) return nullptr;
  const auto number = one_element(tensor);
  if (!number) return nullptr;
  used.push_back(tensor);
  return pool_.constant(*number);
}

void Operations::collect(const GraphValue& value, std::vector<const Expression*>* tensors) {
  if (value.kind == GraphValue::kTensor) tensors->push_back(read(value));
  for (const GraphValue& member : value.members) collect(member, tensors);
}

GraphValue Operations::unsuited(const Call& call, std::string why) {
  std::vector<const Expression*> operands;
  for (const GraphValue& input : call.inputs) {
    collect(input, &operands);
    if (input.is_known_tensor() && why.empty()) {
      const at::Tensor& tensor = input.known.toTensor();
      why = "with " + (input.path.empty() ? "a constant" : module::quoted(input.path)) +
            " of shape " + module::list_text(tensor.sizes());
    }
    if (input.kind == GraphValue::kRuntime && why.empty()) {
      why = "with a value known only at run time";
    }
  }
  return fresh(pool_.other(std::move(operands), std::move(why), call.site));
}

// ---- Running ---------------------------------------------------------------------------------

std::vector<GraphValue> Operations::run(const Node* node, std::vector<GraphValue> inputs) {
  const Call call(node, std::move(inputs));
  const std::string name = node->kind().toQualString();
  const bool has_tensor =
      std::any_of(call.inputs.begin(), call.inputs.end(),
                  [](const GraphValue& value) {
                    return value.kind == GraphValue::kTensor || value.is_known_tensor();
                  }) ||
      std::any_of(node->outputs().begin(), node->outputs().end(), [](const auto* output) {
        return output->type()->kind() == c10::TypeKind::TensorType;
      });
  std::vector<GraphValue> outputs = has_tensor ? run_tensors(call, name) : run_scalars(call, name);
  for (GraphValue& output : outputs) {
    if (output.kind == GraphValue::kRuntime) output.cause = cause_of(call);
  }
  return outputs;
}

const Expression* Operations::cause_of(const Call& call) {
  for (const GraphValue& input : call.inputs) {
    if (input.cause) return input.cause;
    if (input.kind != GraphValue::kTensor) continue;
    for (const Expression* each : reachable(read(input))) {
      if (each->kind == Expression::kOther) return each;
    }
  }
  return nullptr;
}

std::vector<GraphValue> Operations::run_tensors(const Call& call, const std::string& name) {
  const c10::FunctionSchema* const schema = call.node->maybeSchema();
  const bool is_mutable = schema && schema->is_mutable();
  const bool in_place =
      is_mutable && name.ends_with('_') && !name.ends_with("__") && !call.inputs.empty();
  const Handler handler = find_handler(in_place ? name.substr(0, name.size() - 1) : name);
  if (is_mutable && std::any_of(call.inputs.begin(), call.inputs.end(), [&](const GraphValue& v) {
        return v.is_known_tensor() && (&v == &call.inputs[0] || !in_place);
      })) {
    refuse_unsupported("operation: got " + call.site.operation +
                       ", which changes a parameter or constant, need those left as they are" +
                       (call.site.where.empty() ? "" : " (" + call.site.where + ")"));
  }
  if (!handler || call.inputs.empty() || call.node->outputs().size() != 1 ||
      (is_mutable && !in_place)) {
    return unknown_outputs(call);
  }
  GraphValue result = (this->*handler)(call);
  if (!in_place) return {std::move(result)};
  if (call.inputs[0].kind != GraphValue::kTensor) return {std::move(result)};
  if (result.cell != call.inputs[0].cell) write(call.inputs[0], read(result), call.site);
  return {call.inputs[0]};
}

std::vector<GraphValue> Operations::unknown_outputs(const Call& call) {
  const c10::FunctionSchema* const schema = call.node->maybeSchema();
  const GraphValue other = unsuited(call);
  for (size_t i = 0; i < call.inputs.size() && schema && i < schema->arguments().size(); ++i) {
    const auto* const alias = schema->arguments()[i].alias_info();
    if (!alias || !alias->isWrite()) continue;
    if (call.inputs[i].kind == GraphValue::kTensor) {
      write(call.inputs[i], other.cell->expression, call.site);
    }
  }
  const auto base = std::find_if(call.inputs.begin(), call.inputs.end(),
                                 [](const GraphValue& v) { return v.kind == GraphValue::kTensor; });
  std::vector<GraphValue> outputs;
  for (const auto* output : call.node->outputs()) {
    const auto kind = output->type()->kind();
    // A list of tensors counts as one: whatever is taken from it is as unknown.
    if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) {
      outputs.emplace_back();
      continue;
    }
    GraphValue value = fresh(other.cell->expression);
    // It may be a view of any input; the first tensor is what views are taken of.
    if (base != call.inputs.end()) {
      value.cell->base = base->cell;
      value.cell->base_version = base->cell->version;
    }
    outputs.push_back(std::move(value));
  }
  return outputs;
}

std::vector<GraphValue> Operations::run_scalars(const Call& call, const std::string& name) {
  std::vector<GraphValue> outputs(call.node->outputs().size());
  if (name == "aten::len" && call.inputs[0].is_shape) return {GraphValue::of(int64_t{5})};
  const c10::FunctionSchema* const schema = call.node->maybeSchema();
  if (schema && schema->is_mutable()) {
    refuse_unsupported("operation: got " + call.site.operation +
                       ", which changes a list, need none that do" +
                       (call.site.where.empty() ? "" : " (" + call.site.where + ")"));
  }
  const bool all_known =
      std::all_of(call.inputs.begin(), call.inputs.end(), [](const GraphValue& value) {
        return value.kind == GraphValue::kKnown && is_plain_scalar(value.known);
      });
  // A list times a number may be of any size.
  const bool grows = name == "aten::mul" && !call.inputs.empty() &&
                     call.inputs[0].kind == GraphValue::kKnown && call.inputs[0].known.isList();
  if (!schema || schema->is_vararg() || !all_known || grows || !may_fold(name)) return outputs;
  torch::jit::Stack stack;
  for (const GraphValue& value : call.inputs) stack.push_back(value.known);
  call.node->getOperation()(stack);
  for (size_t i = 0; i < outputs.size() && i < stack.size(); ++i) {
    outputs[i] = GraphValue::of(stack[i]);
  }
  return outputs;
}

Operations::Handler Operations::find_handler(const std::string& name) {
  using O = Operations;
  static const std::unordered_map<std::string_view, Handler> kHandlers = {
      {"aten::conv_transpose3d", &O::conv_transpose3d},
      {"aten::_convolution", &O::general_convolution},
      {"aten::convolution", &O::general_convolution},
      {"aten::logsumexp", &O::logsumexp},
      {"aten::special_logsumexp", &O::logsumexp},
      {"aten::softmax", &O::softmax},
      {"aten::_softmax", &O::softmax},
      {"aten::special_softmax", &O::softmax},
      {"aten::add", &O::add},
      {"aten::sub", &O::sub},
      {"aten::subtract", &O::sub},
      {"aten::rsub", &O::rsub},
      {"aten::mul", &O::mul},
      {"aten::multiply", &O::mul},
      {"aten::div", &O::div},
      {"aten::divide", &O::div},
      {"aten::true_divide", &O::div},
      {"aten::reciprocal", &O::reciprocal},
      {"aten::neg", &O::neg},
      {"aten::negative", &O::neg},
      {"aten::square", &O::square},
      {"aten::pow", &O::pow},
      {"aten::sigmoid", &O::sigmoid},
      {"aten::special_expit", &O::sigmoid},
      {"aten::exp", &O::exp},
      {"aten::silu", &O::silu},
      {"aten::hardswish", &O::hardswish},
      {"aten::hardsigmoid", &O::hardsigmoid},
      {"aten::relu", &O::relu},
      {"aten::relu6", &O::relu6},
      {"aten::clamp", &O::clamp},
      {"aten::clip", &O::clamp},
      {"aten::clamp_min", &O::clamp_min},
      {"aten::clamp_max", &O::clamp_max},
      {"aten::hardtanh", &O::hardtanh},
      {"aten::minimum", &O::minimum},
      {"aten::min", &O::minimum},
      {"aten::maximum", &O::maximum},
      {"aten::max", &O::maximum},
      {"aten::contiguous", &O::same},
      {"aten::detach", &O::same},
      {"aten::alias", &O::same},
      {"aten::requires_grad", &O::same},
      {"aten::type_as", &O::same},
      {"aten::cpu", &O::same},
      {"aten::cuda", &O::same},
      {"aten::clone", &O::copy},
      {"aten::to", &O::convert},
      {"aten::dropout", &O::dropout},
      {"aten::feature_dropout", &O::dropout},
      {"aten::alpha_dropout", &O::dropout},
      {"aten::feature_alpha_dropout", &O::dropout},
      {"aten::expand", &O::expand},
      {"aten::expand_as", &O::expand},
      {"aten::view", &O::reshape},
      {"aten::reshape", &O::reshape},
      {"aten::flatten", &O::reshape},
      {"aten::squeeze", &O::reshape},
      {"aten::unsqueeze", &O::unsqueeze},
      {"aten::Int", &O::to_scalar},
      {"aten::Float", &O::to_scalar},
      {"aten::Bool", &O::to_scalar},
      {"aten::item", &O::to_scalar},
      {"aten::IntImplicit", &O::to_scalar},
      {"aten::FloatImplicit", &O::to_scalar},
      {"aten::ScalarImplicit", &O::to_scalar},
      {"prim::NumToTensor", &O::from_scalar},
      {"aten::tensor", &O::from_scalar},
      {"aten::scalar_tensor", &O::from_scalar},
      {"aten::dim", &O::dim},
      {"aten::size", &O::shape},
      {"aten::is_floating_point", &O::is_true},
  };
  const auto found = kHandlers.find(name);
  return found == kHandlers.end() ? nullptr : found->second;
}

}  // namespace volup::torchscript
