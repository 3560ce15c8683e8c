// SPDX-License-Identifier: Apache-2.0
//
// Matches what a graph returns against volup's epilogues, by what is computed. A new epilogue is
// one more matcher here. No graph library here.
#ifndef VOLUP_LOAD_FORMULA_EPILOGUE_MATCH_H_
#define VOLUP_LOAD_FORMULA_EPILOGUE_MATCH_H_

#include <string>
#include <vector>

#include "load/formula/expression.h"
#include "volup/volup.h"

namespace volup::formula {

struct EpilogueMatch {
  volup_epilogue epilogue{};
  int x = 0;            // which argument of forward is convolved
  int convolution = 0;  // index of the kConvolved expression
  int add = -1;         // which one is added; -1: none
  std::vector<std::string> notes;
};

// Throws module::Refusal UNSUPPORTED that names the first operation that does not fit, its place in
// the source, and what was expected.
EpilogueMatch match_epilogue(const Expression* result);

}  // namespace volup::formula

#endif  // VOLUP_LOAD_FORMULA_EPILOGUE_MATCH_H_
