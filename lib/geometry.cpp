// SPDX-License-Identifier: Apache-2.0
#include "geometry.h"

#include <algorithm>
#include <limits>
#include <string>

namespace volup {
namespace {

constexpr const char* kAxisName[3] = {"D", "H", "W"};
// Far above any real layer, far below where index arithmetic on one axis could wrap.
constexpr int64_t kLargestKernel = 1024;
constexpr int64_t kLargestChannels = int64_t{1} << 24;
constexpr int64_t kLargestStep = int64_t{1} << 20;

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

class Faults {
 public:
  template <typename... Parts>
  void require(bool condition, const Parts&... parts) {
    if (condition) return;
    if (!text_.empty()) text_ += "; ";
    text_ += cat(parts...);
  }
  Status status() const { return text_.empty() ? Status() : invalid_argument(text_); }

 private:
  std::string text_;
};

}  // namespace

Status validate(const ConvTranspose3d& g) {
  Faults faults;
  const auto in_range = [&](const char* what, int64_t value, int64_t low, int64_t high) {
    faults.require(value >= low && value <= high, what, ": got ", value, ", need ", low, " to ",
                   high);
  };
  in_range("in_channels", g.in_channels, 1, kLargestChannels);
  in_range("out_channels", g.out_channels, 1, kLargestChannels);
  in_range("groups", g.groups, 1, kLargestChannels);
  if (g.groups >= 1) {
    faults.require(g.in_channels % g.groups == 0 && g.out_channels % g.groups == 0, "groups: got ",
                   g.groups, ", need a divisor of in_channels ", g.in_channels,
                   " and of out_channels ", g.out_channels);
  }
  for (int axis = 0; axis < 3; ++axis) {
    const auto on_axis = [&](const char* what, const Axes& values, int64_t low, int64_t high) {
      faults.require(values[axis] >= low && values[axis] <= high, what, " on ", kAxisName[axis],
                     ": got ", values[axis], ", need ", low, " to ", high);
    };
    on_axis("kernel", g.kernel, 1, kLargestKernel);
    on_axis("stride", g.stride, 1, kLargestStep);
    on_axis("dilation", g.dilation, 1, kLargestStep);
    on_axis("padding_begin", g.padding_begin, 0, kLargestStep);
    on_axis("padding_end", g.padding_end, 0, kLargestStep);
    faults.require(g.output_padding[axis] >= 0 &&
                       g.output_padding[axis] < std::max(g.stride[axis], g.dilation[axis]),
                   "output_padding on ", kAxisName[axis], ": got ", g.output_padding[axis],
                   ", need 0 <= output_padding < max(stride ", g.stride[axis], ", dilation ",
                   g.dilation[axis], ")");
  }
  VOLUP_RETURN_IF_ERROR(faults.status());
  int64_t count = g.in_channels;
  for (const int64_t factor :
       {g.out_per_group(), g.kernel[0], g.kernel[1], g.kernel[2], int64_t{8}}) {
    if (!checked_multiply(count, factor, &count)) {
      return invalid_argument("weight [", g.in_channels, ", ", g.out_per_group(), ", ", g.kernel[0],
                              ", ", g.kernel[1], ", ", g.kernel[2], "]: the bytes pass 2^63");
    }
  }
  return {};
}

Result<int64_t> output_size(const ConvTranspose3d& g, int axis, int64_t in) {
  if (in < 1) {
    return invalid_argument("input size on ", kAxisName[axis], ": got ", in, ", need >= 1");
  }
  int64_t out = 0;
  const bool fits = checked_multiply(in - 1, g.stride[axis], &out) &&
                    checked_add(out,
                                g.dilation[axis] * (g.kernel[axis] - 1) + g.output_padding[axis] +
                                    1 - g.padding_begin[axis] - g.padding_end[axis],
                                &out);
  if (!fits || out < 1) {
    const std::string formula =
        cat("output size on ", kAxisName[axis], ": (in ", in, " - 1) * stride ", g.stride[axis],
            " - padding_begin ", g.padding_begin[axis], " - padding_end ", g.padding_end[axis],
            " + dilation ", g.dilation[axis], " * (kernel ", g.kernel[axis],
            " - 1) + output_padding ", g.output_padding[axis], " + 1");
    return fits ? invalid_argument(formula, " = ", out, ", need >= 1")
                : invalid_argument(formula, " passes 2^63");
  }
  return out;
}

Result<Shape5> output_shape(const ConvTranspose3d& g, const Shape5& input) {
  if (input[0] < 0) return invalid_argument("input batch: got ", input[0], ", need >= 0");
  if (input[1] != g.in_channels) {
    return invalid_argument("input channels: got ", input[1], ", need ", g.in_channels,
                            " (input shape ", input, ")");
  }
  Shape5 output = {input[0], g.out_channels, 0, 0, 0};
  for (int axis = 0; axis < 3; ++axis) {
    VOLUP_ASSIGN_OR_RETURN(output[2 + axis], output_size(g, axis, input[2 + axis]));
  }
  for (const Shape5& shape : {input, output}) {
    if (const auto count = element_count(shape); !count.ok()) return count.status();
  }
  return output;
}

std::vector<Phase> phases(const ConvTranspose3d& g, int axis) {
  const int64_t stride = g.stride[axis];
  std::vector<Phase> all(stride);
  for (int64_t r = 0; r < stride; ++r) all[r].r = r;
  for (int64_t k = 0; k < g.kernel[axis]; ++k) {
    // o = i * stride - begin + k * dilation, so o mod stride is the same for every i.
    const int64_t offset = k * g.dilation[axis] - g.padding_begin[axis];
    const int64_t r = offset - floor_divide(offset, stride) * stride;
    all[r].taps.push_back({k, -floor_divide(offset, stride)});
  }
  return all;
}

int64_t phase_count(int64_t out, int64_t stride, int64_t r) {
  return out > r ? (out - r + stride - 1) / stride : 0;
}

int64_t multiply_adds(const ConvTranspose3d& g, const Shape5& input) {
  // Taps and inputs pair up independently on each axis: count (i, k) whose output exists.
  __int128 total = __int128{input[0]} * g.in_channels * g.out_per_group();
  for (int axis = 0; axis < 3; ++axis) {
    const auto out = output_size(g, axis, input[2 + axis]);
    if (!out.ok()) return 0;
    __int128 pairs = 0;
    for (int64_t k = 0; k < g.kernel[axis]; ++k) {
      const int64_t offset = k * g.dilation[axis] - g.padding_begin[axis];
      // 0 <= i * stride + offset < out
      const int64_t first = std::max<int64_t>(0, -floor_divide(offset, g.stride[axis]));
      const int64_t last =
          std::min(input[2 + axis] - 1, floor_divide(*out - 1 - offset, g.stride[axis]));
      if (last >= first) pairs += last - first + 1;
    }
    total *= pairs;
  }
  return total > std::numeric_limits<int64_t>::max() ? std::numeric_limits<int64_t>::max()
                                                     : static_cast<int64_t>(total);
}

}  // namespace volup
