// SPDX-License-Identifier: Apache-2.0
//
// Which outputs an input reaches, and a case beside the same one with some voxels made loud: what
// loud voxels do not reach must keep its bits.
#ifndef VOLUP_TESTS_LOUD_CASE_H_
#define VOLUP_TESTS_LOUD_CASE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "contract.h"

namespace volup::test {

// Where tap `tap` of the kernel sends the input at `at`, if the output has that place.
inline std::optional<std::array<int64_t, 4>> target_of(const Problem& problem,
                                                       const std::array<int64_t, 4>& at,
                                                       int64_t tap) {
  const ConvTranspose3d& g = problem.geometry;
  const Axes k = {tap / (g.kernel[1] * g.kernel[2]), tap / g.kernel[2] % g.kernel[1],
                  tap % g.kernel[2]};
  std::array<int64_t, 4> voxel = {at[0]};
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t o =
        at[1 + axis] * g.stride[axis] - g.padding_begin[axis] + k[axis] * g.dilation[axis];
    if (o < 0 || o >= problem.conv_output[2 + axis]) return std::nullopt;
    voxel[1 + axis] = o;
  }
  return voxel;
}

struct LoudCase {
  Case quiet, loud;
  std::vector<bool> reached;  // output voxels that read a loud one, [n, z, y, x]

  // Elements of an output of quiet and of loud whose bits differ where no loud voxel reaches; -1
  // where one is not whole.
  int64_t differences(const std::vector<float>& of_quiet, const std::vector<float>& of_loud) const {
    const Shape5& out = quiet.problem.output;
    const size_t size = reached.size() * static_cast<size_t>(out[1]);
    if (of_quiet.size() != size || of_loud.size() != size) return -1;
    int64_t count = 0;
    size_t voxel_index = 0;
    for (const auto& voxel : voxels_of(out, int64_t{1} << 40)) {
      if (reached[voxel_index++]) continue;
      for (int64_t co = 0; co < out[1]; ++co) {
        const size_t at = element_at(out, voxel, co);
        count += std::bit_cast<uint32_t>(of_quiet[at]) != std::bit_cast<uint32_t>(of_loud[at]);
      }
    }
    return count;
  }
};

// Every third sample is quiet, in every third a voxel here and there is 64 times as loud, and every
// third is so throughout. Magnitudes are 2^-8 and more in quiet, so that what decides by a sample's
// range decides for both alike. scale: of quiet logits, about.
inline LoudCase loud_case(const Problem& problem, uint32_t seed, double scale) {
  LoudCase c = {random_case(problem, DataSet::kZeroMean, seed, scale), {}, {}};
  for (float& value : c.quiet.x) {
    if (std::abs(value) < 0x1p-8f) value = std::copysign(0x1p-8f, value);
  }
  c.loud = c.quiet;
  c.loud.name += ", loud";
  const Shape5& in = problem.input;
  const Shape5& out = problem.output;
  const Shape5 voxels_out = {out[0], 1, out[2], out[3], out[4]};
  c.reached.resize(static_cast<size_t>(out[0] * out[2] * out[3] * out[4]));
  std::mt19937 random(seed + 1);
  for (const auto& voxel : voxels_of(in, int64_t{1} << 40)) {
    const int64_t third = voxel[0] % 3;
    if (third == 0 || (third == 1 && random() % 30 != 0)) continue;
    for (int64_t ci = 0; ci < in[1]; ++ci) c.loud.x[element_at(in, voxel, ci)] *= 64.0f;
    for (int64_t tap = 0; tap < problem.geometry.taps(); ++tap) {
      if (const auto target = target_of(problem, voxel, tap)) {
        c.reached[element_at(voxels_out, *target, 0)] = true;
      }
    }
  }
  // Mixed samples must hold both kinds of outputs.
  const auto size = static_cast<ptrdiff_t>(c.reached.size()) / out[0];
  for (ptrdiff_t n = 1; n < out[0]; n += 3) {
    const auto begin = c.reached.begin() + n * size;
    const auto count = std::count(begin, begin + size, true);
    EXPECT_TRUE(count > 0 && count < size) << c.loud.name << ", sample " << n;
  }
  return c;
}

}  // namespace volup::test

#endif  // VOLUP_TESTS_LOUD_CASE_H_
