// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90_steps.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace volup::sm90 {

int parts_of(Engine engine) {
  switch (engine) {
    case Engine::kBf16x3:
      return kPartsOf<Engine::kBf16x3>;
    case Engine::kFp16x2:
      return kPartsOf<Engine::kFp16x2>;
    case Engine::kBf16x2:
      return kPartsOf<Engine::kBf16x2>;
    case Engine::kBf16x1:
    case Engine::kFp16x1:
      break;
  }
  return 1;
}

std::vector<PhaseTaps> phase_taps(const ConvTranspose3d& geometry, int axis) {
  std::vector<PhaseTaps> all;
  for (Phase& phase : phases(geometry, axis)) {
    PhaseTaps taps{static_cast<int32_t>(phase.r), std::move(phase.taps), false};
    taps.empty = taps.taps.empty();
    if (taps.empty) taps.taps = {Tap{0, 0}};
    all.push_back(std::move(taps));
  }
  return all;
}

std::vector<Columns> columns_of(const Plan& plan, const std::vector<PhaseTaps>& x) {
  if (x.size() == 1) return {{{&x[0], &x[0]}, {0, kSquareEdge}, plan.narrow ? 1 : 2}};
  std::vector<Columns> columns;
  for (size_t i = 0; i < x.size(); i += 2) {
    const bool pair = i + 1 < x.size();
    columns.push_back({{&x[i], &x[pair ? i + 1 : i]}, {0, 0}, pair ? 2 : 1});
  }
  return columns;
}

std::vector<BandStep> steps_of(const PhaseTaps& y, const Columns& x, bool joint) {
  std::vector<BandStep> steps;
  for (const Tap& ty : y.taps) {
    for (int j = 0; j < x.accumulators; ++j) {
      for (const Tap& tx : x.phase[j]->taps) {
        const auto& other = x.phase[1 - j]->taps;
        const auto same = std::ranges::find(other, tx.delta, &Tap::delta);
        const bool both =
            joint && x.accumulators == 2 && x.shift[0] == x.shift[1] && same != other.end();
        if (both && j == 0) {
          steps.push_back({&ty, {&tx, &*same}});
        } else if (!both) {
          steps.push_back({&ty, {j == 0 ? &tx : nullptr, j == 1 ? &tx : nullptr}});
        }
      }
    }
  }
  std::ranges::stable_sort(steps, {}, &BandStep::kind);
  return steps;
}

}  // namespace volup::sm90
