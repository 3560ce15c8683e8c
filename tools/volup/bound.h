// SPDX-License-Identifier: Apache-2.0
//
// The precision's bound, for each output of one run: how far a result may lie from the truth when
// the accuracy contract (docs/numerics.md) is kept. Reads no files; compares nothing.
#ifndef VOLUP_TOOLS_VOLUP_BOUND_H_
#define VOLUP_TOOLS_VOLUP_BOUND_H_

#include <vector>

#include "hdf5_file.h"
#include "library.h"

namespace volup::tool {

// What the result's own rounding adds to the bound: floor * max(1, |y|) + unit * |y|.
struct ResultRounding {
  double floor = 0;
  double unit = 0;
};
ResultRounding result_rounding(volup_dtype io);

// For each element of the output, the largest change that the permitted errors of its logits can
// make: their bound is (products' unit + elements' unit) * (sum |x||w| + |b| + |add|), the sum over
// the output's taps. The sums and the logits are computed by the library, on the CPU.
std::vector<float> contract_bound(const volup_model* model, const SessionChoice& choice,
                                  const Tensor& x, const Tensor& add, Progress* progress);

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_BOUND_H_
