// SPDX-License-Identifier: Apache-2.0
//
// Expressions in a normal form; see expression.h. Arithmetic on constants is in double: the float32
// that the model computes with is what remains of it.
#include "load/formula/expression.h"

#include <algorithm>
#include <bit>
#include <set>

namespace volup::formula {
namespace {

void append(std::string* key, int64_t value) {
  key->append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void append(std::string* key, double value) { append(key, std::bit_cast<int64_t>(value)); }

// All that makes two expressions the same; not where they come from.
std::string content_of(const Expression& e) {
  std::string key;
  append(&key, static_cast<int64_t>(e.kind));
  append(&key, static_cast<int64_t>(e.index));
  append(&key, static_cast<int64_t>(e.operand ? e.operand->order : -1));
  append(&key, static_cast<int64_t>(e.keeps_axis * 4 + e.squares_first * 2 + e.constant_early));
  append(&key, e.value);
  append(&key, e.divisor);
  append(&key, e.low);
  append(&key, e.high);
  for (const Expression::Term& term : e.terms) {
    append(&key, static_cast<int64_t>(term.expression->order));
    append(&key, term.factor);
  }
  append(&key, int64_t{-1});
  for (const Expression* factor : e.factors) append(&key, static_cast<int64_t>(factor->order));
  return key;
}

Expression made(Expression::Kind kind, Site site) {
  Expression expression;
  expression.kind = kind;
  expression.site = std::move(site);
  return expression;
}

Expression as_sum(const Expression* a) {
  if (a->kind == Expression::kSum) return *a;
  Expression sum = made(Expression::kSum, a->site);
  if (a->kind == Expression::kConstant) {
    sum.value = a->value;
  } else {
    sum.terms.push_back({1, a});
  }
  return sum;
}

Expression as_product(const Expression* a) {
  if (a->kind == Expression::kProduct) return *a;
  Expression product = made(Expression::kProduct, a->site);
  product.value = 1;
  if (a->kind == Expression::kConstant) {
    product.value = a->value;
  } else {
    product.factors.push_back(a);
  }
  return product;
}

bool has_constant(const Expression& product) { return product.value != 1 || product.divisor != 1; }

}  // namespace

const Expression* ExpressionPool::intern(Expression expression) {
  expression.order = static_cast<int>(all_.size());
  std::string key;
  if (expression.kind != Expression::kOther) {
    key = content_of(expression);
    if (const auto found = by_content_.find(key); found != by_content_.end()) return found->second;
  }
  all_.push_back(std::make_unique<Expression>(std::move(expression)));
  if (!key.empty()) by_content_.emplace(std::move(key), all_.back().get());
  return all_.back().get();
}

const Expression* ExpressionPool::input(int index) {
  Expression expression = made(Expression::kInput, {"an input of forward", ""});
  expression.index = index;
  return intern(std::move(expression));
}

const Expression* ExpressionPool::constant(double value) {
  Expression expression = made(Expression::kConstant, {"a constant", ""});
  expression.value = value;
  return intern(std::move(expression));
}

const Expression* ExpressionPool::convolved(const Expression* operand, int index, Site site) {
  Expression expression = made(Expression::kConvolved, std::move(site));
  expression.index = index;
  expression.operand = operand;
  return intern(std::move(expression));
}

const Expression* ExpressionPool::add(const Expression* a, const Expression* b, double factor,
                                      Site site) {
  Expression sum = as_sum(a);
  sum.site = std::move(site);
  const Expression other = as_sum(b);
  sum.value += factor * other.value;
  for (const Expression::Term& term : other.terms) {
    const double scaled = factor * term.factor;
    const auto same = std::find_if(
        sum.terms.begin(), sum.terms.end(),
        [&term](const Expression::Term& mine) { return mine.expression == term.expression; });
    if (same == sum.terms.end()) {
      sum.terms.push_back({scaled, term.expression});
    } else {
      same->factor += scaled;
    }
  }
  if (sum.terms.empty()) return constant(sum.value);
  if (sum.terms.size() == 1 && sum.terms[0].factor == 1 && sum.value == 0) {
    return sum.terms[0].expression;
  }
  std::sort(sum.terms.begin(), sum.terms.end(),
            [](const Expression::Term& x, const Expression::Term& y) {
              return x.expression->order < y.expression->order;
            });
  return intern(std::move(sum));
}

const Expression* ExpressionPool::multiply(const Expression* a, const Expression* b, Site site) {
  Expression product = as_product(a);
  const Expression right = as_product(b);
  product.squares_first |= right.squares_first;
  product.constant_early |= right.constant_early;
  if (!product.factors.empty() && !right.factors.empty() &&
      (has_constant(product) || has_constant(right))) {
    product.constant_early = true;
  }
  product.value *= right.value;
  product.divisor *= right.divisor;
  product.factors.insert(product.factors.end(), right.factors.begin(), right.factors.end());
  product.site = std::move(site);
  if (product.factors.empty()) return constant(product.value / product.divisor);
  if (product.factors.size() == 1 && !has_constant(product)) return product.factors[0];
  // -(a sum) is the sum of what is negated, exactly; so is -(a product) in a sum.
  if (product.factors.size() == 1 && product.value == -1 && product.divisor == 1) {
    return add(constant(0), product.factors[0], -1, product.site);
  }
  std::sort(product.factors.begin(), product.factors.end(),
            [](const Expression* x, const Expression* y) { return x->order < y->order; });
  const bool all_equal = std::all_of(product.factors.begin(), product.factors.end(),
                                     [&](const Expression* f) { return f == product.factors[0]; });
  product.squares_first |= product.factors.size() > 1 && all_equal;
  return intern(std::move(product));
}

const Expression* ExpressionPool::divide(const Expression* a, const Expression* b, Site site) {
  const bool is_one_more = b->kind == Expression::kSum && b->value == 1 && b->terms.size() == 1 &&
                           b->terms[0].factor == 1;
  if (is_one_more && b->terms[0].expression->kind == Expression::kExp) {
    const Expression* const t = add(constant(0), b->terms[0].expression->operand, -1, site);
    return multiply(a, sigmoid(t, site), site);
  }
  if (b->kind != Expression::kConstant || b->value == 0) {
    return other({a, b}, "a division by other than a constant", std::move(site));
  }
  Expression product = as_product(a);
  product.site = std::move(site);
  product.divisor *= b->value;
  if (product.factors.empty()) return constant(product.value / product.divisor);
  if (product.factors.size() == 1 && !has_constant(product)) return product.factors[0];
  return intern(std::move(product));
}

const Expression* ExpressionPool::log_sum_exp(const Expression* a, bool keeps_axis, Site site) {
  Expression expression = made(Expression::kLogSumExp, std::move(site));
  expression.operand = a;
  expression.keeps_axis = keeps_axis;
  return intern(std::move(expression));
}

const Expression* ExpressionPool::softmax(const Expression* a, Site site) {
  Expression expression = made(Expression::kSoftmax, std::move(site));
  expression.operand = a;
  return intern(std::move(expression));
}

const Expression* ExpressionPool::sigmoid(const Expression* a, Site site) {
  Expression expression = made(Expression::kSigmoid, std::move(site));
  expression.operand = a;
  return intern(std::move(expression));
}

const Expression* ExpressionPool::exponential(const Expression* a, Site site) {
  Expression expression = made(Expression::kExp, std::move(site));
  expression.operand = a;
  return intern(std::move(expression));
}

const Expression* ExpressionPool::clamp(const Expression* a, double low, double high, Site site) {
  Expression expression = made(Expression::kClamp, std::move(site));
  expression.operand = a;
  expression.low = low;
  expression.high = high;
  // A positive scale goes past a clamp: clamp((t + 3) / 6, 0, 1) is clamp(t + 3, 0, 6) / 6.
  if (a->kind == Expression::kProduct && a->factors.size() == 1 && a->value / a->divisor > 0) {
    const double scale = a->value / a->divisor;
    expression.operand = a->factors[0];
    expression.low = low / scale;
    expression.high = high / scale;
    expression.constant_early = true;
    const Expression* const inner = intern(expression);
    const Expression* const scaled = multiply(inner, constant(a->value), expression.site);
    return divide(scaled, constant(a->divisor), expression.site);
  }
  // Clamps whose ranges meet are one clamp.
  if (a->kind == Expression::kClamp && a->low <= high && low <= a->high) {
    expression.operand = a->operand;
    expression.low = std::max(low, a->low);
    expression.high = std::min(high, a->high);
  }
  return intern(std::move(expression));
}

const Expression* ExpressionPool::other(std::vector<const Expression*> operands, std::string why,
                                        Site site) {
  Expression expression = made(Expression::kOther, std::move(site));
  expression.operands = std::move(operands);
  expression.why = std::move(why);
  return intern(std::move(expression));
}

std::vector<const Expression*> reachable(const Expression* root) {
  std::set<std::pair<int, const Expression*>> seen;
  std::vector<const Expression*> open = {root};
  while (!open.empty()) {
    const Expression* const next = open.back();
    open.pop_back();
    if (!next || !seen.insert({next->order, next}).second) continue;
    open.push_back(next->operand);
    for (const Expression::Term& term : next->terms) open.push_back(term.expression);
    for (const Expression* factor : next->factors) open.push_back(factor);
    for (const Expression* operand : next->operands) open.push_back(operand);
  }
  std::vector<const Expression*> out;
  out.reserve(seen.size());
  for (const auto& [order, expression] : seen) out.push_back(expression);
  return out;
}

}  // namespace volup::formula
