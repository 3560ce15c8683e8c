// SPDX-License-Identifier: Apache-2.0
//
// How the taps of a transposed convolution become the steps of "cuda/sm90"'s products: phases, the
// columns of accumulators, steps. What a plan is made of and what weights are packed by.
#ifndef VOLUP_CUDA_SM90_STEPS_H_
#define VOLUP_CUDA_SM90_STEPS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/sm90_layout.h"
#include "cuda/sm90_plan.h"
#include "geometry.h"

namespace volup::sm90 {

int parts_of(Engine engine);

// Taps of one phase; of one tap of zero weight where there is none.
struct PhaseTaps {
  int32_t r = 0;
  std::vector<Tap> taps;
  bool empty = false;
};
std::vector<PhaseTaps> phase_taps(const ConvTranspose3d& geometry, int axis);

// The phases that one class serves along x: accumulator j has phase r[j], shifted by shift[j].
struct Columns {
  const PhaseTaps* phase[2];
  int32_t shift[2];
  int accumulators;
};
std::vector<Columns> columns_of(const Plan& plan, const std::vector<PhaseTaps>& x);

// The phases of one class: along y all of them, or one.
struct ClassPhases {
  const PhaseTaps& z;
  std::span<const PhaseTaps> y;
  const Columns& x;
};

// A step of a band: taps that read the same positions. x[j]: null where accumulator j has none.
struct BandStep {
  const Tap* y;
  const Tap* x[2];

  StepKind kind() const { return x[1] == nullptr ? kFirst : x[0] == nullptr ? kSecond : kBoth; }
};

// Of one phase along y, by kind. joint: taps of both accumulators make one step where they can.
std::vector<BandStep> steps_of(const PhaseTaps& y, const Columns& x, bool joint);

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_STEPS_H_
