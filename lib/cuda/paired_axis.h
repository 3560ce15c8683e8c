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
#include <string_view>
#include <utility>
#include <vector>

#include "geometry.h"
#include "status.h"

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

inline constexpr int64_t kMaxTapOffset = 1 << 20;

// Why the axis is not one, in words; axes: all those of which the kernel asks it.
inline Refusal refuse_unpaired(const ConvTranspose3d& g, int axis, std::string_view axes) {
  const auto paired = paired_axis(g, axis);
  VOLUP_REFUSE_IF(!paired,
                  "needs stride 2 with one tap in one phase and two neighbouring in the other on ",
                  axes, ", got kernel ", g.kernel[axis], ", stride ", g.stride[axis], ", dilation ",
                  g.dilation[axis], " on ", "DHW"[axis]);
  VOLUP_REFUSE_IF(std::abs(paired->delta[0]) > kMaxTapOffset, "padding on ", "DHW"[axis],
                  ": a tap reads ", paired->delta[0], " away, need at most ", kMaxTapOffset);
  return {};
}

}  // namespace volup

#endif  // VOLUP_CUDA_PAIRED_AXIS_H_
