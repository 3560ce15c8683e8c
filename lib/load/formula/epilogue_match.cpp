// SPDX-License-Identifier: Apache-2.0
//
// Matches what a graph returns against volup's epilogues; see epilogue_match.h.
//
// A matcher knows its formula's stages from the convolution on. It is asked about every expression
// of the graph in the graph's order, so that a refusal names the first one that is no stage.
#include "load/formula/epilogue_match.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "load/module_support.h"

namespace volup::formula {
namespace {

using module::refuse_unsupported;
using module::to_text;

std::string place_of(const Expression& e) {
  return e.site.where.empty() ? "" : " (" + e.site.where + ")";
}

[[noreturn]] void refuse(const Expression& e, const std::string& needed) {
  const std::string reason = e.why.empty() ? "" : ", " + e.why;
  refuse_unsupported("operation: got " + e.site.operation + reason + ", need " + needed +
                     place_of(e));
}

bool is_sum_of(const Expression& e, const std::vector<const Expression*>& terms) {
  if (e.kind != Expression::kSum || e.terms.size() != terms.size()) return false;
  return std::all_of(e.terms.begin(), e.terms.end(), [&terms](const Expression::Term& term) {
    return term.factor == 1 &&
           std::find(terms.begin(), terms.end(), term.expression) != terms.end();
  });
}

// value over divisor as one divisor; empty where it is no finite number.
std::optional<double> divisor_of(const Expression& product) {
  const double divisor = product.divisor / product.value;
  if (product.value == 0 || !std::isfinite(divisor) || divisor == 0) return std::nullopt;
  return divisor;
}

void note_product(const Expression& product, EpilogueMatch* match) {
  if (product.value != 1) {
    match->notes.push_back("multiplies by " + to_text(product.value / product.divisor) +
                           " where volup divides by " + to_text(*divisor_of(product)) +
                           place_of(product));
  }
}

float constant_in_float(double value, const char* what, const Expression& e) {
  const float narrow = static_cast<float>(value);
  if (std::isnan(value) || (std::isinf(narrow) && std::isfinite(value))) {
    refuse(e, std::string(what) + " that float32 can hold, not " + to_text(value));
  }
  return narrow;
}

void set_clamp(const Expression& clamp, EpilogueMatch* match) {
  match->epilogue.clamp_min = constant_in_float(clamp.low, "a lower bound", clamp);
  match->epilogue.clamp_max = constant_in_float(clamp.high, "an upper bound", clamp);
  if (!(clamp.low <= clamp.high)) {
    refuse(clamp, "a lower bound that is at most the upper one, not " + to_text(clamp.low) +
                      " and " + to_text(clamp.high));
  }
}

// One formula. accepts: is this expression a stage of it; next: what may come after the stages seen
// so far; finish: fills the constants, or returns false where the result is not the last stage.
class Matcher {
 public:
  virtual ~Matcher() = default;
  virtual bool accepts(const Expression& e) = 0;
  virtual std::string next() const = 0;
  virtual bool finish(const Expression& result, EpilogueMatch* match) const = 0;
};

// clamp(l * sigmoid(l + shift) / divisor - subtract, clamp_min, clamp_max)
class LogsumexpSwishClamp : public Matcher {
 public:
  bool accepts(const Expression& e) override {
    switch (e.kind) {
      case Expression::kLogSumExp:
        if (l_ || !e.keeps_axis || e.operand->kind != Expression::kConvolved) return false;
        l_ = &e;
        return true;
      case Expression::kSum:
        if (is_sum_of(e, {l_}) && !gated_) return true;
        if (gated_ && is_sum_of(e, {gated_})) return true;
        return false;
      case Expression::kSigmoid:
        if (gate_ || (e.operand != l_ && !is_sum_of(*e.operand, {l_}))) return false;
        gate_ = &e;
        return true;
      case Expression::kProduct:
        return accepts_product(e);
      case Expression::kClamp:
        if (clamp_ || !gated_ || (e.operand != gated_ && !is_sum_of(*e.operand, {gated_}))) {
          return false;
        }
        clamp_ = &e;
        return true;
      default:
        return false;
    }
  }

  std::string next() const override {
    if (!l_) return "logsumexp over channels that keeps the axis";
    if (!gate_) return "sigmoid(l + a number) of l, the logsumexp";
    if (!gated_) return "l * sigmoid(l + a number) / a number, l the logsumexp";
    if (!clamp_) return "the subtraction of one number, then a clamp";
    return "nothing after the clamp";
  }

  bool finish(const Expression& result, EpilogueMatch* match) const override {
    if (&result != clamp_) return false;
    volup_epilogue& out = match->epilogue;
    out.kind = VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP;
    const double shift = gate_->operand->kind == Expression::kSum ? gate_->operand->value : 0;
    const double subtract = clamp_->operand->kind == Expression::kSum ? -clamp_->operand->value : 0;
    out.shift = constant_in_float(shift, "a shift", *gate_);
    out.divisor = constant_in_float(*divisor_of(*gated_), "a divisor", *gated_);
    out.subtract = constant_in_float(subtract, "a subtracted number", *clamp_->operand);
    set_clamp(*clamp_, match);
    note_product(*gated_, match);
    if (gated_->constant_early) {
      match->notes.push_back(
          "the gate's constant is applied before its last factor: last bits may differ" +
          place_of(*gated_));
    }
    return true;
  }

 private:
  // Constants may come before the second factor, so a lone scaled factor is a stage too.
  bool accepts_product(const Expression& e) {
    if (!l_ || !divisor_of(e)) return false;
    const auto count = [&e](const Expression* factor) {
      return std::count(e.factors.begin(), e.factors.end(), factor);
    };
    const auto of_l = count(l_), of_gate = gate_ ? count(gate_) : 0;
    if (of_l + of_gate != static_cast<int64_t>(e.factors.size()) || of_l > 1 || of_gate > 1) {
      return false;
    }
    if (of_l + of_gate == 2) gated_ = &e;
    return true;
  }

  const Expression* l_ = nullptr;
  const Expression* gate_ = nullptr;
  const Expression* gated_ = nullptr;
  const Expression* clamp_ = nullptr;
};

// sigmoid(softmax(y))
class SoftmaxSigmoid : public Matcher {
 public:
  bool accepts(const Expression& e) override {
    if (e.kind == Expression::kSoftmax && !softmax_ && e.operand->kind == Expression::kConvolved) {
      softmax_ = &e;
      return true;
    }
    if (e.kind == Expression::kSigmoid && e.operand == softmax_ && !sigmoid_) {
      sigmoid_ = &e;
      return true;
    }
    return false;
  }
  std::string next() const override {
    return sigmoid_ ? "nothing after the sigmoid" : "sigmoid of the softmax";
  }
  bool finish(const Expression& result, EpilogueMatch* match) const override {
    match->epilogue.kind = VOLUP_EPILOGUE_SOFTMAX_SIGMOID;
    return &result == sigmoid_;
  }

 private:
  const Expression* softmax_ = nullptr;
  const Expression* sigmoid_ = nullptr;
};

// (t * (clamp(t + shift, clamp_min, clamp_max) / divisor)) * t with t = y + add
class AddHardswish : public Matcher {
 public:
  bool accepts(const Expression& e) override {
    switch (e.kind) {
      case Expression::kSum:
        if (!t_) return accepts_addition(e);
        return is_t_plus_constant(e);
      case Expression::kClamp:
        if (clamp_ || !t_ || !is_t_plus_constant(*e.operand)) return false;
        clamp_ = &e;
        return true;
      case Expression::kProduct:
        return accepts_product(e);
      default:
        return false;
    }
  }

  std::string next() const override {
    if (!t_) return "the addition of forward's other input";
    if (!clamp_) return "hardswish(t), or t times clamp(t + a number), t being the sum";
    if (!product_) return "t * hardswish(t), t being the sum";
    return "nothing after the product";
  }

  bool finish(const Expression& result, EpilogueMatch* match) const override {
    if (&result != product_) return false;
    volup_epilogue& out = match->epilogue;
    out.kind = VOLUP_EPILOGUE_ADD_HARDSWISH;
    const double shift = clamp_->operand->kind == Expression::kSum ? clamp_->operand->value : 0;
    out.shift = constant_in_float(shift, "a shift", *clamp_);
    out.divisor = constant_in_float(*divisor_of(*product_), "a divisor", *product_);
    set_clamp(*clamp_, match);
    match->add = add_->index;
    note_product(*product_, match);
    if (product_->squares_first) {
      match->notes.push_back(
          "multiplies t by t first, which overflows where volup's order does not" +
          place_of(*product_));
    }
    if (clamp_->constant_early) {
      match->notes.push_back(
          "scales before the clamp where volup scales after it: last bits may differ" +
          place_of(*clamp_));
    }
    return true;
  }

 private:
  bool accepts_addition(const Expression& e) {
    if (e.terms.size() != 2 || e.value != 0) return false;
    const Expression* const a = e.terms[0].expression;
    const Expression* const b = e.terms[1].expression;
    const Expression* const convolved = a->kind == Expression::kConvolved ? a : b;
    add_ = convolved == a ? b : a;
    if (convolved->kind != Expression::kConvolved || add_->kind != Expression::kInput ||
        !is_sum_of(e, {a, b}) || add_ == convolved->operand) {
      return false;
    }
    t_ = &e;
    return true;
  }

  bool is_t_plus_constant(const Expression& e) const {
    return &e == t_ || is_sum_of(e, {t_->terms[0].expression, t_->terms[1].expression});
  }

  // Partial products are stages: t * t, t * clamp, clamp / 6.
  bool accepts_product(const Expression& e) {
    if (!t_ || !divisor_of(e)) return false;
    const auto count = [&e](const Expression* factor) {
      return std::count(e.factors.begin(), e.factors.end(), factor);
    };
    const auto of_t = count(t_), of_clamp = clamp_ ? count(clamp_) : 0;
    if (of_t + of_clamp != static_cast<int64_t>(e.factors.size()) || of_t > 2 || of_clamp > 1) {
      return false;
    }
    if (of_t == 2 && of_clamp == 1) product_ = &e;
    return true;
  }

  const Expression* t_ = nullptr;
  const Expression* add_ = nullptr;
  const Expression* clamp_ = nullptr;
  const Expression* product_ = nullptr;
};

std::unique_ptr<Matcher> matcher_for(const Expression& first) {
  switch (first.kind) {
    case Expression::kLogSumExp:
      return std::make_unique<LogsumexpSwishClamp>();
    case Expression::kSoftmax:
      return std::make_unique<SoftmaxSigmoid>();
    case Expression::kSum:
      return std::make_unique<AddHardswish>();
    default:
      return nullptr;
  }
}

constexpr const char* kFirstStages =
    "logsumexp over channels, softmax over channels, or the addition of a second input, after the "
    "transposed convolution";

}  // namespace

EpilogueMatch match_epilogue(const Expression* result) {
  const std::vector<const Expression*> expressions = reachable(result);
  EpilogueMatch match;
  match.epilogue.divisor = 1;
  std::unique_ptr<Matcher> matcher;
  const Expression* convolved = nullptr;
  for (const Expression* e : expressions) {
    if (e->kind == Expression::kInput || e->kind == Expression::kConstant) continue;
    if (e->kind == Expression::kConvolved) {
      if (convolved) refuse(*e, "one transposed convolution, not two");
      if (e->operand->kind != Expression::kInput) {
        refuse(*e->operand, "a transposed convolution of forward's own input");
      }
      convolved = e;
      continue;
    }
    if (!convolved) refuse(*e, "a 3-D transposed convolution of forward's input first");
    if (!matcher) matcher = matcher_for(*e);
    if (!matcher) refuse(*e, kFirstStages);
    if (!matcher->accepts(*e)) refuse(*e, matcher->next());
  }
  if (!convolved) refuse(*result, "a 3-D transposed convolution");
  if (!matcher) refuse(*result, std::string("more than the convolution: ") + kFirstStages);
  if (!matcher->finish(*result, &match)) {
    refuse_unsupported("result: got that of " + result->site.operation + ", need " +
                       matcher->next() + place_of(*result));
  }
  match.x = convolved->operand->index;
  match.convolution = convolved->index;
  return match;
}

}  // namespace volup::formula
