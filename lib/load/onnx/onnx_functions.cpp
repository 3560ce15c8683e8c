// SPDX-License-Identifier: Apache-2.0
//
// The operations that are understood, one function each: arithmetic, pointwise functions, what goes
// over channels, the convolution, and what changes no value. Their table is in onnx_operations.cpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "load/module_support.h"
#include "load/onnx/onnx_convolution.h"
#include "load/onnx/onnx_operations.h"
#include "load/onnx/onnx_tensor.h"

namespace volup::onnx_file {
namespace {

using module::to_text;
using onnx::TensorProto;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool keeps_axes(const onnx::NodeProto& node) { return integer_attribute(node, "keepdims", 1) != 0; }

}  // namespace

// ---- Arithmetic ------------------------------------------------------------------------------

Value Operations::add(const Call& call) {
  // log(sum(exp(y - max))) + max, in either order.
  for (size_t i = 0; i < 2 && call.inputs.size() == 2; ++i) {
    const Value& sum = call.input(i);
    const Value& max = call.input(1 - i);
    if (sum.step == Value::kLogSum && max.step == Value::kMax && sum.base == max.base) {
      note("logsumexp is spelled out in steps");
      return plain(pool_.log_sum_exp(sum.base, true, call.site));
    }
  }
  const Expression *a = nullptr, *b = nullptr;
  return operands(call, &a, &b) ? plain(pool_.add(a, b, 1, call.site)) : unsuited(call);
}

Value Operations::sub(const Call& call) {
  const Expression *a = nullptr, *b = nullptr;
  if (!operands(call, &a, &b)) return unsuited(call);
  const Value& max = call.input(1);
  if (max.step == Value::kMax && max.base == a) {
    Value value = unsuited(call);
    value.step = Value::kShifted;
    value.base = a;
    return value;
  }
  return plain(pool_.add(a, b, -1, call.site));
}

Value Operations::mul(const Call& call) {
  const Expression *a = nullptr, *b = nullptr;
  return operands(call, &a, &b) ? plain(pool_.multiply(a, b, call.site)) : unsuited(call);
}

Value Operations::div(const Call& call) {
  const Expression *a = nullptr, *b = nullptr;
  if (!operands(call, &a, &b)) return unsuited(call);
  const Value& exp = call.input(0);
  const Value& sum = call.input(1);
  if (exp.step == Value::kExp && sum.step == Value::kExpSum && exp.base == sum.base &&
      exp.is_shifted == sum.is_shifted) {
    note(exp.is_shifted ? "softmax is spelled out in steps"
                        : "softmax is spelled out without a maximum: it overflows where volup's "
                          "does not");
    return plain(pool_.softmax(exp.base, call.site));
  }
  return plain(pool_.divide(a, b, call.site));
}

Value Operations::neg(const Call& call) {
  const Expression* const a = operand(call);
  if (!a) return unsuited(call);
  return pointwise(call, pool_.multiply(a, pool_.constant(-1), call.site));
}

Value Operations::pow(const Call& call) {
  const Expression* const a = operand(call);
  if (!a || bound(call, 1, 0) != 2.0) return unsuited(call, "with an exponent other than 2");
  return pointwise(call, pool_.multiply(a, a, call.site));
}

Value Operations::reciprocal(const Call& call) {
  const Expression* const a = operand(call);
  if (!a || a->kind != Expression::kConstant) return unsuited(call);
  return plain(pool_.divide(pool_.constant(1), a, call.site));
}

Value Operations::minimum(const Call& call) {
  const Expression *a = nullptr, *b = nullptr;
  if (!operands(call, &a, &b)) return unsuited(call);
  if (a->kind == Expression::kConstant) std::swap(a, b);
  if (b->kind != Expression::kConstant) return unsuited(call);
  return plain(pool_.clamp(a, -kInfinity, b->value, call.site));
}

Value Operations::maximum(const Call& call) {
  const Expression *a = nullptr, *b = nullptr;
  if (!operands(call, &a, &b)) return unsuited(call);
  if (a->kind == Expression::kConstant) std::swap(a, b);
  if (b->kind != Expression::kConstant) return unsuited(call);
  return plain(pool_.clamp(a, b->value, kInfinity, call.site));
}

// ---- Pointwise functions ---------------------------------------------------------------------

Value Operations::sigmoid(const Call& call) {
  const Expression* const a = operand(call);
  return a ? pointwise(call, pool_.sigmoid(a, call.site)) : unsuited(call);
}

Value Operations::relu(const Call& call) {
  const Expression* const a = operand(call);
  return a ? pointwise(call, pool_.clamp(a, 0, kInfinity, call.site)) : unsuited(call);
}

Value Operations::clip(const Call& call) {
  const Expression* const a = operand(call);
  const auto low = bound(call, 1, -kInfinity), high = bound(call, 2, kInfinity);
  if (!a || !low || !high) return unsuited(call);
  return pointwise(call, pool_.clamp(a, *low, *high, call.site));
}

// max(0, min(1, alpha * t + beta)) as clamp(t + shift, 0, divisor) / divisor. 1 / 6 in float32
// gives back the 6 that its writer meant.
const Expression* Operations::hard_sigmoid_of(const Expression* t, double alpha, double beta,
                                              const Site& site) const {
  const double divisor = static_cast<float>(1 / alpha);
  const Expression* const shifted = pool_.add(t, pool_.constant(beta * divisor), 1, site);
  return pool_.divide(pool_.clamp(shifted, 0, divisor, site), pool_.constant(divisor), site);
}

Value Operations::hard_sigmoid(const Call& call) {
  const onnx::AttributeProto* const alpha = find_attribute(call.node, "alpha");
  const onnx::AttributeProto* const beta = find_attribute(call.node, "beta");
  const double a = alpha ? alpha->f() : 0.2f;
  const double b = beta ? beta->f() : 0.5f;
  const Expression* const t = operand(call);
  if (!t || !(a > 1e-30 && a < 1e30)) return unsuited(call);
  return pointwise(call, hard_sigmoid_of(t, a, b, call.site));
}

Value Operations::hard_swish(const Call& call) {
  const Expression* const t = operand(call);
  if (!t) return unsuited(call);
  const Expression* const gate = hard_sigmoid_of(t, 1.0 / 6, 0.5, call.site);
  return pointwise(call, pool_.multiply(t, gate, call.site));
}

// ---- Over channels ---------------------------------------------------------------------------

Value Operations::with_step(Value value, Value::Step step, const Value& from) const {
  value.step = step;
  value.base = from.base;
  value.is_shifted = from.is_shifted;
  return value;
}

Value Operations::exp(const Call& call) {
  const Expression* const a = operand(call);
  Value value = unsuited(call);
  if (!a || call.input(0).order != kInOrder) return value;
  value.step = Value::kExp;
  value.is_shifted = call.input(0).step == Value::kShifted;
  value.base = value.is_shifted ? call.input(0).base : a;
  return value;
}

Value Operations::log(const Call& call) {
  if (!call.has(0) || call.input(0).step != Value::kExpSum) return unsuited(call);
  const Value& sum = call.input(0);
  if (sum.is_shifted) return with_step(unsuited(call), Value::kLogSum, sum);
  note("logsumexp is spelled out without a maximum: it overflows where volup's does not");
  return plain(pool_.log_sum_exp(sum.base, true, call.site));
}

Value Operations::reduce_max(const Call& call) {
  const Expression* const a = operand(call);
  Value value = unsuited(call);
  if (!a || !is_over_channels(call) || !keeps_axes(call.node)) return value;
  value.step = Value::kMax;
  value.base = a;
  return value;
}

Value Operations::reduce_sum(const Call& call) {
  if (!call.has(0) || call.input(0).step != Value::kExp || !is_over_channels(call) ||
      !keeps_axes(call.node)) {
    return unsuited(call);
  }
  return with_step(unsuited(call), Value::kExpSum, call.input(0));
}

Value Operations::reduce_log_sum_exp(const Call& call) {
  const Expression* const a = operand(call);
  if (!a || !is_over_channels(call)) return unsuited(call, "over other axes than channels");
  return plain(pool_.log_sum_exp(a, keeps_axes(call.node), call.site));
}

Value Operations::softmax(const Call& call) {
  const Expression* const a = operand(call);
  if (!a) return unsuited(call);
  // Before opset 13 it goes over all axes from `axis` on.
  const bool is_flat = opset_ < 13;
  int64_t axis = integer_attribute(call.node, "axis", is_flat ? 1 : -1);
  axis += axis < 0 ? 5 : 0;
  if (axis < 0 || axis > 4 || call.input(0).order[static_cast<size_t>(axis)] != 1) {
    return unsuited(call, "over another axis than channels");
  }
  if (is_flat && axis != 4) {
    return unsuited(call, "over all axes from " + to_text(axis) + " on, as opset " +
                              to_text(opset_) + " has it");
  }
  return pointwise(call, pool_.softmax(a, call.site));
}

// ---- The convolution -------------------------------------------------------------------------

Value Operations::conv_transpose(const Call& call) {
  const Expression* const x = operand(call);
  if (!x || call.input(0).order != kInOrder) return unsuited(call);
  if (!call.has(1) || !call.input(1).tensor) return unsuited(call, "whose weight is no constant");
  if (call.has(2) && !call.input(2).tensor) return unsuited(call, "whose bias is no constant");
  const TensorProto& weight = *call.input(1).tensor;
  const std::vector<int64_t> shape = shape_of(weight);
  if (shape.size() != 5 || count_of(weight) == 0) {
    return unsuited(call, "whose weight is " + module::list_text(shape));
  }
  const bool is_input = x->kind == Expression::kInput;
  const std::vector<int64_t> input =
      is_input ? input_shapes_[static_cast<size_t>(x->index)] : std::vector<int64_t>();
  ResolvedGeometry resolved = resolve_geometry(call.node, shape, input);
  if (!resolved.fault.empty()) {
    module::refuse_unsupported(resolved.fault + " (ConvTranspose, " + call.site.where + ")");
  }
  for (const std::string& text : resolved.notes) note(text + " (" + call.site.where + ")");
  const bool has_bias = call.has(2);
  convolutions.push_back({&weight, has_bias ? call.input(2).tensor : nullptr, call.input(1).name,
                          has_bias ? call.input(2).name : "", resolved.geometry});
  return plain(pool_.convolved(x, static_cast<int>(convolutions.size()) - 1, call.site));
}

// ---- What changes no value -------------------------------------------------------------------

Value Operations::same(const Call& call) { return call.has(0) ? call.input(0) : unsuited(call); }

Value Operations::dropout(const Call& call) {
  const bool may_train = call.has(2) && bound(call, 2, 0) != 0.0;
  if (may_train) {
    const TensorProto* const mode = call.input(2).tensor;
    // A constant false is a bool, which is no number here.
    const bool is_false = mode && mode->data_type() == TensorProto::BOOL &&
                          std::all_of(mode->raw_data().begin(), mode->raw_data().end(),
                                      [](char c) { return c == 0; }) &&
                          std::all_of(mode->int32_data().begin(), mode->int32_data().end(),
                                      [](int32_t v) { return v == 0; });
    if (!is_false) return unsuited(call, "in training mode");
  }
  return same(call);
}

Value Operations::cast(const Call& call) {
  const auto to = static_cast<int32_t>(integer_attribute(call.node, "to", 0));
  const bool is_float = to == TensorProto::FLOAT || to == TensorProto::FLOAT16 ||
                        to == TensorProto::BFLOAT16 || to == TensorProto::DOUBLE;
  if (!call.has(0) || !is_float) return unsuited(call, "to " + type_name(to));
  Value value = call.input(0);
  if (value.tensor) {
    // float32 holds what it holds of half; the other way round values change.
    const bool widens =
        to == TensorProto::FLOAT || to == TensorProto::DOUBLE || to == value.tensor->data_type();
    return widens ? value : unsuited(call, "of a constant to " + type_name(to));
  }
  note("casts to " + type_name(to) + " where volup goes on in float32 (" + call.site.where + ")");
  value.is_cast = value.expression->kind != Expression::kInput;
  return value;
}

Value Operations::constant(const Call& call) {
  if (call.node.output_size() == 0) return unsuited(call);
  if (const onnx::AttributeProto* const value = find_attribute(call.node, "value")) {
    return of_constant(&value->t(), call.node.output(0));
  }
  TensorProto& made = made_[call.node.output(0)];
  made.set_name(call.node.output(0));
  if (const onnx::AttributeProto* const number = find_attribute(call.node, "value_float")) {
    made.set_data_type(TensorProto::FLOAT);
    made.add_float_data(number->f());
  } else if (const onnx::AttributeProto* const whole = find_attribute(call.node, "value_int")) {
    made.set_data_type(TensorProto::INT64);
    made.add_int64_data(whole->i());
  } else if (const onnx::AttributeProto* const list = find_attribute(call.node, "value_floats")) {
    made.set_data_type(TensorProto::FLOAT);
    made.add_dims(list->floats_size());
    *made.mutable_float_data() = list->floats();
  } else if (const onnx::AttributeProto* const all = find_attribute(call.node, "value_ints")) {
    made.set_data_type(TensorProto::INT64);
    made.add_dims(all->ints_size());
    *made.mutable_int64_data() = all->ints();
  } else {
    return unsuited(call, "of text or of a sparse tensor");
  }
  return of_constant(&made, call.node.output(0));
}

Value Operations::transpose(const Call& call) {
  const onnx::AttributeProto* const perm = find_attribute(call.node, "perm");
  const Expression* const a = operand(call);
  if (!a || a->kind == Expression::kConstant) return unsuited(call);
  AxisOrder axes = {4, 3, 2, 1, 0};
  if (perm) {
    if (perm->ints_size() != 5) return unsuited(call, "of other than five axes");
    std::copy(perm->ints().begin(), perm->ints().end(), axes.begin());
  }
  if (!std::is_permutation(axes.begin(), axes.end(), kInOrder.begin())) return unsuited(call);
  Value value = call.input(0);
  value.step = Value::kNone;
  for (size_t i = 0; i < 5; ++i) value.order[i] = call.input(0).order[static_cast<size_t>(axes[i])];
  return value;
}

// Puts back the axis that a logsumexp left out.
Value Operations::unsqueeze(const Call& call) {
  const Expression* const a = operand(call);
  const bool suits = a && a->kind == Expression::kLogSumExp && !a->keeps_axis &&
                     axes_of(call, 5) == std::vector<int64_t>{1};
  return suits ? plain(pool_.log_sum_exp(a->operand, true, call.site)) : unsuited(call);
}

}  // namespace volup::onnx_file
