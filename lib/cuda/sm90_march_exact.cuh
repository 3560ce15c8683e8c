// SPDX-License-Identifier: Apache-2.0
//
// Outputs of the marching kernel once more, by chains of FMA from the tensors in memory: for those
// that came out NaN. Slow; it serves infinities, NaN and the last binades of fp32 alone.
#ifndef VOLUP_CUDA_SM90_MARCH_EXACT_CUH_
#define VOLUP_CUDA_SM90_MARCH_EXACT_CUH_

#include "cuda/sm90_march_layout.h"

namespace volup::sm90_march {

// A base position and its phase.
struct Place {
  int n, z, y, x;
  int phase_z, phase_y, phase_x;
};

// One of the 8 positions of x around a place, and where it is: element of channel 0 in the sample,
// or -1 where no tap of the place reads it.
struct Neighbour {
  int z, y, side;  // along W: left or right
  int64_t element;

  __device__ Neighbour(const Parameters& p, const Place& at, int i)
      : z(i / 4), y(i / 2 % 2), side(i % 2), element(-1) {
    const int iz = at.z + p.offset_z[z];
    const int iy = at.y + p.offset_y[y];
    const int ix = at.x + p.offset_x + side;
    if (z <= at.phase_z && y <= at.phase_y && (at.phase_x == 1 || side == p.shared_side) &&
        static_cast<unsigned>(iz) < static_cast<unsigned>(p.in_d) &&
        static_cast<unsigned>(iy) < static_cast<unsigned>(p.in_h) &&
        static_cast<unsigned>(ix) < static_cast<unsigned>(p.in_w)) {
      element = (int64_t{iz} * p.in_h + iy) * p.in_w + ix;
    }
  }
};

template <typename Io>
__device__ inline float value_of(const Parameters& p, const Place& at, const Neighbour& neighbour,
                                 int ci) {
  const int64_t channel = int64_t{p.in_d} * p.in_h * p.in_w;
  return mma::to_float(static_cast<const Io*>(
      p.x)[(int64_t{at.n} * p.in_channels + ci) * channel + neighbour.element]);
}

template <typename Io>
__device__ __noinline__ bool reads_finite_values(const Parameters& p, const Place& at) {
  bool finite = true;
  for (int i = 0; i < 8; ++i) {
    const Neighbour neighbour(p, at, i);
    if (neighbour.element < 0) continue;
    for (int ci = 0; ci < p.in_channels; ++ci) {
      finite = finite && isfinite(value_of<Io>(p, at, neighbour, ci));
    }
  }
  return finite;
}

template <typename Io, int kParts>
__device__ __noinline__ float exact_logit(const Parameters& p, const Place& at, int c) {
  float sum = 0;
  for (int i = 0; i < 8; ++i) {
    const Neighbour neighbour(p, at, i);
    if (neighbour.z > at.phase_z || neighbour.y > at.phase_y) continue;
    for (int ci = 0; ci <= p.in_channels; ++ci) {
      float weight = 0;
      for (int part = 0; part < kParts; ++part) {
        const int tile =
            tile_of(tap_of(at.phase_z, neighbour.z), tap_of(at.phase_y, neighbour.y), part, kParts);
        weight += p.weights[element_of_tile(tile, column_of_channel(at.phase_x, c),
                                            neighbour.side * 4 + ci)];
      }
      if (ci == p.in_channels) {
        sum += weight;  // the bias, or 0
      } else if (neighbour.element >= 0) {
        sum = fmaf(value_of<Io>(p, at, neighbour, ci), weight, sum);
      }
    }
  }
  return sum;
}

// Logsumexp of the position and what follows it.
template <typename Io, int kParts>
__device__ __noinline__ float exact_output(const Parameters& p, const Place& at) {
  float maximum = -INFINITY;  // skips NaN, which then shows in the sum
  for (int c = 0; c < p.finish.channels; ++c) {
    maximum = fmaxf(maximum, exact_logit<Io, kParts>(p, at, c));
  }
  if (isinf(maximum)) maximum = 0;  // as in ATen
  float sum = 0;
  for (int c = 0; c < p.finish.channels; ++c) {
    sum += ptx::exp2_approximate(exact_logit<Io, kParts>(p, at, c) - maximum);
  }
  return mma::subtract_and_clamp(mma::gated_of_log2(ptx::log2_approximate(sum) + maximum, p.finish),
                                 p.finish);
}

}  // namespace volup::sm90_march

#endif  // VOLUP_CUDA_SM90_MARCH_EXACT_CUH_
