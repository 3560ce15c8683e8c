// SPDX-License-Identifier: Apache-2.0
//
// Geometry of a 3-D transposed convolution: validity, output size, and its decomposition into
// phases. No weights, no data. Every other place takes these rules from here.
//
// Per axis an output position o takes input i through tap k iff o = i * stride - padding_begin +
// k * dilation. Written as o = q * stride + r with 0 <= r < stride, the taps that reach o depend on
// the phase r alone, and tap k reads input q + delta. So a transposed convolution is one dense
// convolution a phase, and each tap belongs to one phase.
#ifndef VOLUP_GEOMETRY_H_
#define VOLUP_GEOMETRY_H_

#include <vector>

#include "tensor.h"

namespace volup {

struct ConvTranspose3d {
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t groups = 1;
  Axes kernel = {1, 1, 1};
  Axes stride = {1, 1, 1};
  Axes padding_begin = {0, 0, 0};
  Axes padding_end = {0, 0, 0};
  Axes output_padding = {0, 0, 0};
  Axes dilation = {1, 1, 1};

  bool operator==(const ConvTranspose3d&) const = default;

  int64_t in_per_group() const { return in_channels / groups; }
  int64_t out_per_group() const { return out_channels / groups; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  // Elements of the weight [in_channels, out_channels / groups, kD, kH, kW].
  int64_t weight_count() const { return in_channels * out_per_group() * taps(); }
};

// Every rule that does not need an input size; the words name all faults at once.
Status validate(const ConvTranspose3d& geometry);

// Output size along axis (0 D, 1 H, 2 W) of a valid geometry; fails where it is below 1 or passes
// int64, with the formula's values.
Result<int64_t> output_size(const ConvTranspose3d& geometry, int axis, int64_t in);

// Shape of the convolution's output; fails with words on wrong channels or sizes.
Result<Shape5> output_shape(const ConvTranspose3d& geometry, const Shape5& input);

// Multiply-adds over taps that read an input that exists.
// Saturates at int64's maximum.
int64_t multiply_adds(const ConvTranspose3d& geometry, const Shape5& input);

struct Tap {
  int64_t k;      // index into the kernel axis
  int64_t delta;  // reads input q + delta; may be negative
  bool operator==(const Tap&) const = default;
};

// The taps that reach output positions q * stride + r of one axis; may be empty (dilation and
// stride with a common factor): those positions hold the bias alone.
struct Phase {
  int64_t r;
  std::vector<Tap> taps;
};

// The phases of an axis, in order of r: stride of them.
std::vector<Phase> phases(const ConvTranspose3d& geometry, int axis);

// Number of positions q of phase r in an axis of out positions.
int64_t phase_count(int64_t out, int64_t stride, int64_t r);

}  // namespace volup

#endif  // VOLUP_GEOMETRY_H_
