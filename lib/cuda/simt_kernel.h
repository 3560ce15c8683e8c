// SPDX-License-Identifier: Apache-2.0
//
// What the host tells "cuda/simt": sizes, the walk over positions and the taps of each phase, all
// as arithmetic, so that no table depends on the geometry. No device code beyond division.
#ifndef VOLUP_CUDA_SIMT_KERNEL_H_
#define VOLUP_CUDA_SIMT_KERNEL_H_

#include <cstdint>

#include "epilogue.h"
#include "tensor.h"

namespace volup {

// Division of 0 <= n < 2^63 by a divisor known beforehand: n / d = (n * magic) >> (63 + shift) with
// shift = ceil(log2 d) and magic = ceil(2^(63 + shift) / d), exact since n < 2^63 (Granlund and
// Montgomery, "Division by Invariant Integers using Multiplication", theorem 4.2).
struct Divider {
  uint64_t magic = uint64_t{1} << 63;
  int64_t divisor = 1;
  int shift = 0;

  Divider() = default;
  explicit Divider(int64_t by) : divisor(by) {
    while ((uint64_t{1} << shift) < static_cast<uint64_t>(by)) ++shift;
    const auto d = static_cast<unsigned __int128>(by);
    magic =
        static_cast<uint64_t>(((static_cast<unsigned __int128>(1) << (63 + shift)) + d - 1) / d);
  }

  VOLUP_HOST_DEVICE int64_t divide(int64_t n) const {
    const uint64_t doubled = static_cast<uint64_t>(n) << 1;
#if defined(__CUDA_ARCH__)
    return static_cast<int64_t>(__umul64hi(doubled, magic) >> shift);
#else
    return static_cast<int64_t>(
        static_cast<uint64_t>((static_cast<unsigned __int128>(doubled) * magic) >> 64) >> shift);
#endif
  }

  // n / d, and n mod d in *rest.
  VOLUP_HOST_DEVICE int64_t divide(int64_t n, int64_t* rest) const {
    const int64_t quotient = divide(n);
    *rest = n - quotient * divisor;
    return quotient;
  }
};

// Positions of one axis, phase by phase: neighbouring lanes then run the same taps and read
// neighbouring inputs. span neighbours of one phase make a unit; a unit may reach past its phase.
struct SimtAxis {
  int64_t in = 1;
  uint32_t kernel = 1;
  uint32_t tap_step = 1;  // below
  int64_t padding = 0;
  int64_t dilation = 1;

  // Output o = q * stride + r. The first long_phases phases have one position more than the rest.
  int64_t long_phases = 1;
  int64_t short_count = 0;  // positions of the other phases
  int64_t long_units = 1;   // units in all of the long phases
  int64_t units = 1;        // in the whole axis
  int64_t span = 1;
  Divider by_long{1};   // units of a long phase
  Divider by_short{1};  // units of a short phase

  // Taps of phase r: with g = gcd(stride, dilation) and tap_step = stride / g, they are k = first,
  // first + tap_step, ... where g divides r + padding, and none elsewhere; inputs go down by
  // delta_step a tap.
  int64_t delta_step = 1;  // dilation / g
  int64_t inverse = 0;     // of delta_step modulo tap_step
  Divider by_stride{1};
  Divider by_common{1};  // g
  Divider by_tap_step{1};
};

// Kernel parameters.
struct SimtArguments {
  const void* x = nullptr;
  const void* add = nullptr;
  void* out = nullptr;
  const float* bias = nullptr;    // [tiles, tile]
  const float* weight = nullptr;  // [tiles, taps, in_per_group, tile]
  Epilogue epilogue;

  SimtAxis axis[3];
  Divider by_units[3];
  int64_t batch = 0;
  int64_t batch_span = 1;  // samples a thread takes
  int span_axis = -1;      // the axis whose span is not 1; -1: the batch
  int64_t items = 0;       // threads' worth of positions, a channel tile

  int64_t in_sample = 0;   // elements of x's sample
  int64_t in_plane = 0;    // D * H * W of x
  int64_t out_sample = 0;  // elements of out's sample
  int64_t out_plane = 0;
  int64_t out_row_d = 0;  // between neighbours along D and H
  int64_t out_row_h = 0;
  int64_t in_step = 0;   // between the inputs of neighbours in a thread
  int64_t out_step = 0;  // between their outputs

  int64_t in_per_group = 0;
  int64_t out_per_group = 0;
  int64_t taps = 0;
  int64_t tiles = 0;
  Divider by_tiles_per_group{1};

  // Warps of a block: channel_warps take different tiles of the same positions.
  int channel_warps = 1;
  int position_warps = 1;
  int64_t block_passes = 1;  // rounds of channel tiles inside a block
  Divider by_grid_passes{1};
  int64_t blocks = 0;
};

}  // namespace volup

#endif  // VOLUP_CUDA_SIMT_KERNEL_H_
