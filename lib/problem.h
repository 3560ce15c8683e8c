// SPDX-License-Identifier: Apache-2.0
//
// A problem: what is computed on which sizes, without weights or device. Dispatch is a function of
// it and of the device's properties. Its string is the one spelling for logs, errors, tests,
// benchmarks and the tool.
#ifndef VOLUP_PROBLEM_H_
#define VOLUP_PROBLEM_H_

#include <string>
#include <string_view>

#include "epilogue.h"
#include "geometry.h"
#include "tensor.h"

namespace volup {

// What a kernel may need to know of the weights to accept them. Not part of the problem string: a
// parsed problem has well-behaved weights.
struct WeightFacts {
  bool finite = true;
  // Largest, over output channels, of ilogb(max |w|) - ilogb(min |w| that is not 0).
  int exponent_range = 0;
  // Over all weights: ilogb(max |w|), and what ilogb(min |w| that is not 0) is below that.
  int greatest_exponent = 0, exponent_span = 0;
};

struct Problem {
  ConvTranspose3d geometry;
  Epilogue epilogue;
  Precision precision = Precision::kFp32;
  DType io = DType::kFp32;
  Shape5 input = {};        // N, Cin, D, H, W
  Shape5 conv_output = {};  // N, Cout, D, H, W of the convolution
  Shape5 output = {};       // of the epilogue: conv_output, or 1 channel
  WeightFacts weights;
};

// Checks everything that can be said without a device, and derives the output shapes. On success
// element counts times 8 fit int64.
Result<Problem> make_problem(const ConvTranspose3d& geometry, const Epilogue& epilogue,
                             const Shape5& input, Precision precision = Precision::kFp32,
                             DType io = DType::kFp32);

// "C n128 ci32 co64 i16x16x16 k3 s2 p1 op1 fp32"; defaults (s1 p0 op0 d1 g1 io=fp32) are left out.
// The precision is always there. Constants of the epilogue are not.
std::string print(const Problem& problem);

// parse(print(p)) describes p again, with the default constants of the epilogue.
Result<Problem> parse_problem(std::string_view text);

}  // namespace volup

#endif  // VOLUP_PROBLEM_H_
