// SPDX-License-Identifier: Apache-2.0
//
// An axis of stride 2 with one tap in one phase (0) and two neighbouring ones in the other (1),
// where the one tap reads a position that the two read as well: neighbour 0 is that one, 1 the
// other. Kernel 3 with dilation 1 is such an axis, whatever its padding.
#ifndef VOLUP_CUDA_PAIRED_AXIS_H_
#define VOLUP_CUDA_PAIRED_AXIS_H_

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "geometry.h"

namespace volup {

struct PairedAxis {
  int residue[2];
  int64_t k[2][2];   // kernel index [phase][neighbour]
  int64_t delta[2];  // of each neighbour
};

inline std::optional<PairedAxis> paired_axis(const ConvTranspose3d& g, int axis) {
  if (g.stride[axis] != 2) return {};
  const std::vector<Phase> all = phases(g, axis);
  const size_t one = all[0].taps.size() == 1 ? 0 : 1;
  const std::vector<Tap>& single = all[one].taps;
  std::vector<Tap> both = all[1 - one].taps;
  if (single.size() != 1 || both.size() != 2) return {};
  if (both[1].delta == single[0].delta) std::swap(both[0], both[1]);
  if (both[0].delta != single[0].delta || std::abs(both[1].delta - both[0].delta) != 1) return {};
  return PairedAxis{{static_cast<int>(all[one].r), static_cast<int>(all[1 - one].r)},
                    {{single[0].k, -1}, {both[0].k, both[1].k}},
                    {both[0].delta, both[1].delta}};
}

}  // namespace volup

#endif  // VOLUP_CUDA_PAIRED_AXIS_H_
