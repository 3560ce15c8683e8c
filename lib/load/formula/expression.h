// SPDX-License-Identifier: Apache-2.0
//
// What a graph computes, as expressions in a normal form: sums and products are flat and without
// order, constants are folded, equal expressions are one object. Built by the readers of
// TorchScript and ONNX graphs, matched by epilogue_match.cpp. None of their libraries here.
#ifndef VOLUP_LOAD_FORMULA_EXPRESSION_H_
#define VOLUP_LOAD_FORMULA_EXPRESSION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace volup::formula {

// Where an expression comes from, for messages.
struct Site {
  std::string operation;  // "aten::relu"
  std::string where;      // "model.py:12"; empty where the file does not say
};

struct Expression {
  enum Kind {
    kInput,      // tensor argument number index of forward
    kConstant,   // value; of one element
    kConvolved,  // a transposed convolution of operand, with weights number index
    kSum,        // terms, each times its factor, plus value
    kProduct,    // factors times value over divisor
    kLogSumExp,  // of operand over channels; keeps the axis if keeps_axis
    kSoftmax,    // of operand over channels
    kSigmoid,    // of operand
    kExp,        // of operand; no stage of a formula, but a part of a sigmoid spelled out
    kClamp,      // operand between low and high
    kOther       // anything that volup does not compute; why says more
  };
  struct Term {
    double factor;
    const Expression* expression;
  };

  Kind kind = kOther;
  int order = 0;  // of creation: that of the graph
  Site site;
  const Expression* operand = nullptr;
  std::vector<Term> terms;
  std::vector<const Expression*> factors;  // by order
  double value = 0;
  double divisor = 1;
  double low = 0, high = 0;
  int index = 0;
  bool keeps_axis = false;
  // Spelled so that rounding or overflow differ from volup's order: a product of equal factors was
  // formed alone; a constant was applied before a product's last factor or before a clamp.
  bool squares_first = false;
  bool constant_early = false;
  std::string why;
  std::vector<const Expression*> operands;  // kOther: the tensors it was computed from
};

// Makes and owns expressions. Operands must come from the same pool. Where an operation has no
// normal form the result is kOther, at the site given.
class ExpressionPool {
 public:
  const Expression* input(int index);
  const Expression* constant(double value);
  const Expression* convolved(const Expression* operand, int index, Site site);
  // a + factor * b
  const Expression* add(const Expression* a, const Expression* b, double factor, Site site);
  const Expression* multiply(const Expression* a, const Expression* b, Site site);
  // a / (1 + exp(-t)) is a * sigmoid(t).
  const Expression* divide(const Expression* a, const Expression* b, Site site);
  const Expression* log_sum_exp(const Expression* a, bool keeps_axis, Site site);
  const Expression* softmax(const Expression* a, Site site);
  const Expression* sigmoid(const Expression* a, Site site);
  const Expression* exponential(const Expression* a, Site site);
  const Expression* clamp(const Expression* a, double low, double high, Site site);
  const Expression* other(std::vector<const Expression*> operands, std::string why, Site site);

 private:
  const Expression* intern(Expression expression);

  std::vector<std::unique_ptr<Expression>> all_;
  std::map<std::string, const Expression*> by_content_;
};

// Every expression that root is computed from, root included, in order of creation.
std::vector<const Expression*> reachable(const Expression* root);

}  // namespace volup::formula

#endif  // VOLUP_LOAD_FORMULA_EXPRESSION_H_
