// SPDX-License-Identifier: Apache-2.0
//
// Geometry and epilogue between volup.h's structs and our own.
#ifndef VOLUP_ABI_CONVERT_H_
#define VOLUP_ABI_CONVERT_H_

#include <algorithm>

#include "epilogue.h"
#include "geometry.h"
#include "volup/volup.h"

namespace volup {

inline ConvTranspose3d geometry_from_abi(const volup_geometry& g) {
  const auto axes = [](const int64_t(&v)[3]) { return Axes{v[0], v[1], v[2]}; };
  return {g.in_channels,       g.out_channels,         g.groups,
          axes(g.kernel),      axes(g.stride),         axes(g.padding_begin),
          axes(g.padding_end), axes(g.output_padding), axes(g.dilation)};
}

inline volup_geometry geometry_to_abi(const ConvTranspose3d& g) {
  volup_geometry out = {};
  out.struct_size = sizeof(out);
  out.in_channels = g.in_channels;
  out.out_channels = g.out_channels;
  out.groups = g.groups;
  const auto copy = [](const Axes& from, int64_t(&to)[3]) {
    std::copy(from.begin(), from.end(), to);
  };
  copy(g.kernel, out.kernel);
  copy(g.stride, out.stride);
  copy(g.padding_begin, out.padding_begin);
  copy(g.padding_end, out.padding_end);
  copy(g.output_padding, out.output_padding);
  copy(g.dilation, out.dilation);
  return out;
}

inline Epilogue epilogue_from_abi(const volup_epilogue& e) {
  return {
      static_cast<EpilogueKind>(e.kind), e.shift, e.divisor, e.subtract, e.clamp_min, e.clamp_max};
}

inline volup_epilogue epilogue_to_abi(const Epilogue& e) {
  return {sizeof(volup_epilogue),
          static_cast<int32_t>(e.kind),
          e.shift,
          e.divisor,
          e.subtract,
          e.clamp_min,
          e.clamp_max};
}

}  // namespace volup

#endif  // VOLUP_ABI_CONVERT_H_
