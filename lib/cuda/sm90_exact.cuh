// SPDX-License-Identifier: Apache-2.0
//
// Outputs of "cuda/sm90" by plain FMA, where a tile had an accumulator that is not finite: products
// of parts do not carry infinities. Slow, and rare: it serves NaN and infinity alone.
#ifndef VOLUP_CUDA_SM90_EXACT_CUH_
#define VOLUP_CUDA_SM90_EXACT_CUH_

#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"

namespace volup::sm90 {

template <Engine kEngine, EpilogueKind kKind, typename Io, int kN>
struct Exact : Block {
  using Block::Block;
  static constexpr int kParts = kPartsOf<kEngine>;
  static constexpr bool kAdds = takes_add(kKind);
  static constexpr bool kCouples = couples_channels(kKind);
  using Operand = OperandOf<kEngine>;

  // A part in the packed weights, as a number.
  __device__ static float operand(const unsigned char* at) {
    return to_float(*reinterpret_cast<const Operand*>(at));
  }

  // Convolution and bias, from x as it is in memory and from the packed weights: the sums of their
  // parts, smallest first.
  __device__ float exact_logit(const Tile& tile, int j, int row, int channel) const {
    float sum = 0.0f;
    const Band& band = this->band(tile.band);
    const Io* x = static_cast<const Io*>(p.x);
    for (int slab = 0; slab < p.chunks * c.planes && !band.empty[j]; ++slab) {
      const int z = tile.z + c.delta_z[slab % c.planes];
      for (int step = 0; step < band.steps[kBoth] + band.steps[kFirst + j]; ++step) {
        const bool both = step < band.steps[kBoth];
        const StepKind kind = both ? kBoth : j == 0 ? kFirst : kSecond;
        const int i = both ? step : step - band.steps[kBoth];
        const int before =
            both
                ? 2 * i
                : band.blocks() -
                      (j == 0 ? band.steps[kFirst] + band.steps[kSecond] : band.steps[kSecond]) + i;
        const unsigned char* block =
            weights() +
            (static_cast<int64_t>(slab) * band.blocks() + before) * kBlockBytes<kEngine, kN>;
        const int position = band.step_at[kind][i] / (kRowBytes / 16);
        const int y = tile.y + c.y_min + position / c.slab_x + row / kSquareEdge;
        const int xx = tile.x + c.x_min + position % c.slab_x + row % kSquareEdge;
        if (z < 0 || z >= p.id || y < 0 || y >= p.ih || xx < 0 || xx >= p.iw) continue;
        const int first_ci = slab / c.planes * kChunk;
        const Io* at = x + (static_cast<int64_t>(tile.n) * p.ci + first_ci) * p.input_plane +
                       (static_cast<int64_t>(z) * p.ih + y) * p.iw + xx;
        const int channels = min(kChunk, p.ci - first_ci);
        for (int k = 0; k < channels; ++k, at += p.input_plane) {
          float weight = 0.0f;
          for (int part = kParts - 1; part >= 0; --part) {
            const uint32_t w_row = (both ? (part * 2 + j) * kN : part * kN) + channel;
            const uint32_t w_at = w_row * kRowBytes;
            const float scale = kScales<kEngine> && part == 1 ? 1 / kLowScale : 1;
            weight += operand(block + w_at + swizzled(w_at, k / 8) + k % 8 * 2) * scale;
          }
          if constexpr (kScales<kEngine>) weight *= p.weight_unscale;
          sum = fmaf(to_float(*at), weight, sum);
        }
      }
    }
    return sum + p.bias[first_channel(kN) + channel];
  }

  // By a warp, after it stored its rows of the tile. A thread takes all channels of a position
  // where the epilogue couples them, and one otherwise. An accumulator that is not finite makes its
  // output not finite, and a softmax's whole row NaN; what came out finite stands, so that its bits
  // do not depend on what else is in the tile.
  __device__ void exact_rows(const Tile& tile) const {
    constexpr int kOwn = kRows / 4;
    const int own = warp() * kOwn;
    const int channels = min(kN, p.co - first_channel(kN));
    const int64_t plane = p.output_plane;
    const int per_position = kCouples ? 1 : channels;
    for (int item = lane(); item < kOwn * c.accumulators * per_position; item += 32) {
      const int row = own + item % kOwn;
      const int j = item / kOwn % c.accumulators;
      const int z = tile.z * p.stride_z + c.phase_z;
      const int y = (tile.y + row / kSquareEdge) * p.stride_y + band(tile.band).phase_y;
      const int x = (tile.x + c.shift_x[j] + row % kSquareEdge) * p.stride_x + c.phase_x[j];
      if (y >= p.oh || x >= p.ow) continue;
      const int64_t first =
          (((static_cast<int64_t>(tile.n) * p.co + first_channel(kN)) * p.od + z) * p.oh + y) *
              p.ow +
          x;
      const int channel = kCouples ? 0 : item / (kOwn * c.accumulators);
      Io* out = static_cast<Io*>(p.out) + first;
      if (isfinite(to_float(out[channel * plane]))) continue;
      const auto logit = [&](int64_t k) { return exact_logit(tile, j, row, static_cast<int>(k)); };
      if constexpr (kKind == EpilogueKind::kSoftmaxSigmoid) {
        softmax_sigmoid<float>(channels, logit, [&](int64_t k, float value) {
          out[k * plane] = from_float<Io>(value);
        });
      } else {
        float value = logit(channel);
        if constexpr (kAdds) {
          const float a = to_float(static_cast<const Io*>(p.add)[first + channel * plane]);
          value = hardswish_product(value + a, p.epilogue);
        }
        out[channel * plane] = from_float<Io>(value);
      }
    }
  }
};

// Not inlined and without the caller's state, whose members stay in registers there.
template <Engine kEngine, EpilogueKind kKind, typename Io, int kN>
__device__ __noinline__ void exact_rows_apart(const Parameters& p, Shared& shared, Share share,
                                              Tile tile) {
  const Exact<kEngine, kKind, Io, kN> exact(p, shared, share);
  exact.exact_rows(tile);
}

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_EXACT_CUH_
