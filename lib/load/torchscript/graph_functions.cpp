// SPDX-License-Identifier: Apache-2.0
//
// The operations that are understood, one function each: arithmetic, pointwise functions, what goes
// over channels, convolutions, and what changes no value. The table of their names is in
// graph_operations.cpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "load/module_support.h"
#include "load/torchscript/graph_operations.h"
#include "load/torchscript/tensor_access.h"

namespace volup::torchscript {
namespace {

using module::to_text;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_full_size(const Expression* e) {
  for (const Expression* each : reachable(e)) {
    if (each->kind == Expression::kLogSumExp || each->kind == Expression::kOther) return false;
  }
  return true;
}

bool is_channel_axis(int64_t dim) { return dim == 1 || dim == -4; }

}  // namespace

// ---- Arithmetic ------------------------------------------------------------------------------

GraphValue Operations::add(const Call& call) {
  const Expression* const a = self(call);
  const Expression* const b = operand(call.find("other"));
  const auto alpha = call.find("alpha") ? call.number("alpha") : 1.0;
  if (!a || !b || !alpha) return unsuited(call);
  return fresh(pool_.add(a, b, *alpha, call.site));
}

GraphValue Operations::sub(const Call& call) {
  const Expression* const a = self(call);
  const Expression* const b = operand(call.find("other"));
  const auto alpha = call.find("alpha") ? call.number("alpha") : 1.0;
  if (!a || !b || !alpha) return unsuited(call);
  return fresh(pool_.add(a, b, -*alpha, call.site));
}

GraphValue Operations::rsub(const Call& call) {
  const Expression* const a = self(call);
  const Expression* const b = operand(call.find("other"));
  const auto alpha = call.find("alpha") ? call.number("alpha") : 1.0;
  if (!a || !b || !alpha) return unsuited(call);
  return fresh(pool_.add(b, a, -*alpha, call.site));
}

GraphValue Operations::mul(const Call& call) {
  const Expression* const a = self(call);
  const Expression* const b = operand(call.find("other"));
  if (!a || !b) return unsuited(call);
  return fresh(pool_.multiply(a, b, call.site));
}

GraphValue Operations::div(const Call& call) {
  const Expression* const a = self(call);
  const Expression* const b = operand(call.find("other"));
  const GraphValue* const rounding = call.find("rounding_mode");
  if (!a || !b) return unsuited(call);
  if (rounding && !rounding->is_none()) return unsuited(call, "which rounds");
  return fresh(pool_.divide(a, b, call.site));
}

GraphValue Operations::reciprocal(const Call& call) {
  const Expression* const a = self(call);
  return a ? fresh(pool_.divide(pool_.constant(1), a, call.site)) : unsuited(call);
}

GraphValue Operations::neg(const Call& call) {
  const Expression* const a = self(call);
  if (!a) return unsuited(call);
  return fresh(pool_.multiply(a, pool_.constant(-1), call.site));
}

GraphValue Operations::square(const Call& call) {
  const Expression* const a = self(call);
  if (!a) return unsuited(call);
  return fresh(pool_.multiply(a, a, call.site));
}

GraphValue Operations::pow(const Call& call) {
  const Expression* const exponent = operand(call.find("exponent"));
  const bool is_two = exponent && exponent->kind == Expression::kConstant && exponent->value == 2;
  return is_two ? square(call) : unsuited(call, "with an exponent other than 2");
}

// ---- Pointwise functions ---------------------------------------------------------------------

GraphValue Operations::sigmoid(const Call& call) {
  const Expression* const a = self(call);
  return a ? fresh(pool_.sigmoid(a, call.site)) : unsuited(call);
}

GraphValue Operations::exp(const Call& call) {
  const Expression* const a = self(call);
  return a ? fresh(pool_.exponential(a, call.site)) : unsuited(call);
}

GraphValue Operations::silu(const Call& call) {
  const Expression* const a = self(call);
  if (!a) return unsuited(call);
  return fresh(pool_.multiply(a, pool_.sigmoid(a, call.site), call.site));
}

const Expression* Operations::hardsigmoid_of(const Expression* t, const Site& site) {
  const Expression* const shifted = pool_.add(t, pool_.constant(3), 1, site);
  return pool_.divide(pool_.clamp(shifted, 0, 6, site), pool_.constant(6), site);
}

GraphValue Operations::hardsigmoid(const Call& call) {
  const Expression* const a = self(call);
  return a ? fresh(hardsigmoid_of(a, call.site)) : unsuited(call);
}

GraphValue Operations::hardswish(const Call& call) {
  const Expression* const a = self(call);
  if (!a) return unsuited(call);
  return fresh(pool_.multiply(a, hardsigmoid_of(a, call.site), call.site));
}

GraphValue Operations::clamp_between(const Call& call, double low, double high) {
  const Expression* const a = self(call);
  return a ? fresh(pool_.clamp(a, low, high, call.site)) : unsuited(call);
}

GraphValue Operations::relu(const Call& call) { return clamp_between(call, 0, kInfinity); }
GraphValue Operations::relu6(const Call& call) { return clamp_between(call, 0, 6); }

GraphValue Operations::clamp(const Call& call) {
  double bounds[2] = {-kInfinity, kInfinity};
  const char* const names[2] = {"min", "max"};
  for (int i = 0; i < 2; ++i) {
    const GraphValue* const value = call.find(names[i]);
    if (!value || value->is_none()) continue;
    const Expression* const bound = operand(value);
    if (!bound || bound->kind != Expression::kConstant) return unsuited(call);
    bounds[i] = bound->value;
  }
  return clamp_between(call, bounds[0], bounds[1]);
}

GraphValue Operations::clamp_min(const Call& call) {
  const Expression* const low = operand(call.find("min"));
  if (!low || low->kind != Expression::kConstant) return unsuited(call);
  return clamp_between(call, low->value, kInfinity);
}

GraphValue Operations::clamp_max(const Call& call) {
  const Expression* const high = operand(call.find("max"));
  if (!high || high->kind != Expression::kConstant) return unsuited(call);
  return clamp_between(call, -kInfinity, high->value);
}

GraphValue Operations::hardtanh(const Call& call) {
  const auto low = call.number("min_val"), high = call.number("max_val");
  return low && high ? clamp_between(call, *low, *high) : unsuited(call);
}

GraphValue Operations::minimum(const Call& call) {
  const Expression* const high = operand(call.find("other"));
  if (!high || high->kind != Expression::kConstant) return unsuited(call);
  return clamp_between(call, -kInfinity, high->value);
}

GraphValue Operations::maximum(const Call& call) {
  const Expression* const low = operand(call.find("other"));
  if (!low || low->kind != Expression::kConstant) return unsuited(call);
  return clamp_between(call, low->value, kInfinity);
}

// ---- Over channels ---------------------------------------------------------------------------

GraphValue Operations::softmax(const Call& call) {
  const Expression* const a = self(call);
  const auto axis = call.integer("dim");
  if (!a || !axis) return unsuited(call);
  if (!is_channel_axis(*axis)) return unsuited(call, "over axis " + to_text(*axis));
  const GraphValue* const dtype = call.find("dtype");
  if (dtype && !dtype->is_none()) {
    const auto type = call.integer("dtype");
    if (!type || !is_wide_type(*type)) return unsuited(call, "in another type than float32");
  }
  return fresh(pool_.softmax(a, call.site));
}

GraphValue Operations::logsumexp(const Call& call) {
  const Expression* const a = self(call);
  const auto axes = call.integers("dim");
  const auto keeps_axis = call.boolean("keepdim");
  if (!a || !axes || !keeps_axis) return unsuited(call);
  if (axes->size() != 1 || !is_channel_axis((*axes)[0])) {
    return unsuited(call, "over the axes " + module::list_text(*axes));
  }
  return fresh(pool_.log_sum_exp(a, *keeps_axis, call.site));
}

// ---- Convolutions ----------------------------------------------------------------------------

GraphValue Operations::conv_transpose3d(const Call& call) {
  const auto dilation = call.integers("dilation");
  return dilation ? convolution(call, *dilation) : unsuited(call);
}

GraphValue Operations::general_convolution(const Call& call) {
  const auto transposed = call.boolean("transposed");
  if (!transposed) return unsuited(call);
  if (!*transposed) return unsuited(call, "not transposed");
  return conv_transpose3d(call);
}

GraphValue Operations::convolution(const Call& call, const std::vector<int64_t>& dilation) {
  const GraphValue* const weight = call.find("weight");
  const GraphValue* const bias = call.find("bias");
  const Expression* const x = self(call);
  const auto groups = call.integer("groups");
  if (!x || !weight || !bias || !groups) return unsuited(call);
  if (!weight->is_known_tensor()) return unsuited(call, "with weights that are computed");
  const at::Tensor& w = weight->known.toTensor();
  if (w.dim() != 5) return unsuited(call);
  Convolution met;
  met.weight = w;
  if (!bias->is_none()) {
    if (!bias->is_known_tensor()) return unsuited(call, "with a bias that is computed");
    met.bias = bias->known.toTensor();
    met.has_bias = true;
  }
  volup_geometry& g = met.geometry;
  g.groups = *groups;
  g.in_channels = w.size(0);
  if (__builtin_mul_overflow(w.size(1), *groups, &g.out_channels)) return unsuited(call);
  const struct {
    const char* name;
    int64_t (volup_geometry::*field)[3];
  } kLists[] = {{"stride", &volup_geometry::stride},
                {"padding", &volup_geometry::padding_begin},
                {"output_padding", &volup_geometry::output_padding}};
  for (const auto& list : kLists) {
    const auto values = call.integers(list.name);
    if (!values) {
      return unsuited(call, std::string("with ") + list.name + " known only at run time");
    }
    if (values->size() != 1 && values->size() != 3) return unsuited(call);
    for (size_t i = 0; i < 3; ++i) (g.*list.field)[i] = (*values)[values->size() == 1 ? 0 : i];
  }
  if (dilation.size() != 1 && dilation.size() != 3) return unsuited(call);
  for (size_t i = 0; i < 3; ++i) {
    g.dilation[i] = dilation[dilation.size() == 1 ? 0 : i];
    g.padding_end[i] = g.padding_begin[i];
    g.kernel[i] = w.size(static_cast<int64_t>(i) + 2);
  }
  convolutions.push_back(std::move(met));
  return fresh(pool_.convolved(x, static_cast<int>(convolutions.size()) - 1, call.site));
}

// ---- What changes no value -------------------------------------------------------------------

GraphValue Operations::same(const Call& call) { return call.inputs[0]; }

GraphValue Operations::copy(const Call& call) {
  const Expression* const a = self(call);
  return a ? fresh(a) : unsuited(call);
}

// A conversion to a type at least as wide, or of an input, whose type the convolution sets anyway.
GraphValue Operations::convert(const Call& call) {
  const GraphValue* const dtype = call.find("dtype");
  if (!dtype || dtype->kind != GraphValue::kKnown || dtype->known.isNone()) return same(call);
  const auto type = call.integer("dtype");
  const bool is_input = call.inputs[0].kind == GraphValue::kTensor &&
                        read(call.inputs[0])->kind == Expression::kInput;
  if (type && (is_wide_type(*type) || (is_input && is_float_type(*type)))) return same(call);
  return unsuited(call, "to another type than float32");
}

GraphValue Operations::dropout(const Call& call) {
  const auto trains = call.boolean("train");
  const auto p = call.number("p");
  if ((trains && !*trains) || (p && *p == 0)) return same(call);
  return unsuited(call, trains ? "in training mode (save the module after eval())" : "");
}

GraphValue Operations::expand(const Call& call) {
  const Expression* const a = self(call);
  if (!a) return unsuited(call);
  if (a->kind == Expression::kConstant) return fresh(a);
  const GraphValue* const size = call.find("size");
  const GraphValue* const other = call.find("other");
  const bool to_tensor = other && other->kind == GraphValue::kTensor && is_full_size(read(*other));
  const bool to_shape = size && size->is_shape;
  if (is_full_size(a) && (to_tensor || to_shape)) return same(call);
  return unsuited(call, "to another shape");
}

// Of one number, every shape of up to 5 axes computes the same.
GraphValue Operations::reshape(const Call& call) {
  const Expression* const a = self(call);
  const auto size = call.find("size") ? call.integers("size") : call.integers("shape");
  const bool fits = !size || size->size() <= 5;
  if (a && a->kind == Expression::kConstant && fits) return fresh(a);
  return unsuited(call);
}

GraphValue Operations::unsqueeze(const Call& call) {
  const Expression* const a = self(call);
  const auto axis = call.integer("dim");
  if (a && a->kind == Expression::kConstant) return fresh(a);
  const bool restores =
      a && a->kind == Expression::kLogSumExp && !a->keeps_axis && axis && is_channel_axis(*axis);
  if (!restores) return unsuited(call);
  GraphValue out = fresh(pool_.log_sum_exp(a->operand, true, call.site));
  out.cell->base = call.inputs[0].cell;
  out.cell->base_version = out.cell->base->version;
  return out;
}

// ---- Scalars and tensors ---------------------------------------------------------------------

GraphValue Operations::to_scalar(const Call& call) {
  const Expression* const a = self(call);
  if (!a || a->kind != Expression::kConstant) return GraphValue();
  const auto kind = call.node->output()->type()->kind();
  if (kind == c10::TypeKind::IntType) {
    if (std::abs(a->value) > 9e15) return GraphValue();
    return GraphValue::of(static_cast<int64_t>(a->value));
  }
  if (kind == c10::TypeKind::BoolType) return GraphValue::of(a->value != 0);
  return GraphValue::of(a->value);
}

GraphValue Operations::from_scalar(const Call& call) {
  if (!call.inputs[0].is_known_number()) return unsuited(call);
  return fresh(self(call));
}

GraphValue Operations::dim(const Call& call) {
  const GraphValue& value = call.inputs[0];
  if (value.is_known_tensor()) return GraphValue::of(value.known.toTensor().dim());
  if (value.is_shape) return GraphValue::of(int64_t{5});
  if (value.kind != GraphValue::kTensor) return GraphValue();
  for (const Expression* each : reachable(read(value))) {
    if (each->kind == Expression::kOther || each->kind == Expression::kConstant ||
        (each->kind == Expression::kLogSumExp && !each->keeps_axis)) {
      return GraphValue();
    }
  }
  return GraphValue::of(int64_t{5});
}

GraphValue Operations::shape(const Call& call) {
  GraphValue out;
  if (call.find("dim")) return out;
  out.is_shape = call.inputs[0].kind == GraphValue::kTensor && is_full_size(read(call.inputs[0]));
  return out;
}

GraphValue Operations::is_true(const Call&) { return GraphValue::of(true); }

}  // namespace volup::torchscript
