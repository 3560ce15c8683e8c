// SPDX-License-Identifier: Apache-2.0
//
// The packed weights of "cuda/sm90", in the order that sm90_layout.h gives.
#include <cmath>
#include <span>

#include "cuda/sm90_plan.h"
#include "cuda/sm90_steps.h"
#include "half.h"

namespace volup::sm90 {

namespace {

// Parts of a weight, largest first.
void split(const Plan& plan, float value, uint16_t (&part)[3]) {
  if (plan.engine == Engine::kFp16x1) {
    part[0] = fp16_from(value);
    return;
  }
  if (plan.engine == kScaledEngine) {
    value = std::ldexp(value, kGreatestExponent - plan.weight_exponent);
    part[0] = fp16_from(value);
    part[1] = fp16_from((value - float_from_fp16(part[0])) * kLowScale);
    return;
  }
  for (int i = 0; i < parts_of(plan.engine); ++i) {
    part[i] = bf16_from(value);
    value -= float_from_bf16(part[i]);
  }
}

// The weights of a tap in a chunk of input channels and a tile of output channels: channel n's part
// i is in row i * part_rows + n.
void pack_tap(const Plan& plan, const Model& model, int tile, int chunk, int64_t tap, int part_rows,
              uint16_t* rows) {
  const ConvTranspose3d& g = model.geometry();
  for (int k = 0; k < kChunk; ++k) {
    const int64_t ci = int64_t{chunk} * kChunk + k;
    for (int n = 0; n < plan.channels; ++n) {
      const int64_t co = int64_t{tile} * plan.channels + n;
      if (ci >= g.in_channels || co >= g.out_channels) continue;
      uint16_t part[3] = {};
      split(plan, model.weight()[(ci * g.out_channels + co) * g.taps() + tap], part);
      for (int i = 0; i < parts_of(plan.engine); ++i) {
        const int row = (i * part_rows + n) * kRowBytes;
        const int eight = (k / 8) ^ (row >> 7 & 3);
        rows[row / 2 + eight * 8 + k % 8] = part[i];
      }
    }
  }
}

// The blocks of a band, of one phase along y, from block on. Returns where the next one's begin.
uint16_t* pack_band(const Plan& plan, const Model& model, int tile, const ClassPhases& phases,
                    bool joint, uint16_t* block) {
  const ConvTranspose3d& g = model.geometry();
  const auto& [z, y, x] = phases;
  const int64_t block_elements = int64_t{parts_of(plan.engine)} * kChunk * plan.channels;
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    for (const Tap& tz : z.taps) {
      for (const BandStep& step : steps_of(y[0], x, joint)) {
        const int accumulators = step.kind() == kBoth ? 2 : 1;
        uint16_t* rows = block;
        for (int j = 0; j < 2; ++j) {
          if (step.x[j] == nullptr) continue;
          const int64_t tap = (tz.k * g.kernel[1] + step.y->k) * g.kernel[2] + step.x[j]->k;
          if (!z.empty && !y[0].empty && !x.phase[j]->empty) {
            pack_tap(plan, model, tile, chunk, tap, accumulators * plan.channels, rows);
          }
          rows += kChunk * plan.channels;
        }
        block += accumulators * block_elements;
      }
    }
  }
  return block;
}

}  // namespace

Result<std::vector<std::byte>> pack(const Plan& plan, const Model& model) {
  const ConvTranspose3d& g = model.geometry();
  std::vector<std::byte> bytes(plan.packed_bytes());
  const bool couples = couples_channels(model.epilogue().kind);
  auto* bias = reinterpret_cast<float*>(bytes.data() + plan.bias_at());
  for (int64_t co = 0; co < int64_t{plan.channel_tiles} * plan.channels; ++co) {
    bias[co] = co < g.out_channels ? (model.bias() != nullptr ? model.bias()[co] : 0.0f)
                                   : (couples ? -INFINITY : 0.0f);
  }

  const auto z = phase_taps(g, 0), y = phase_taps(g, 1), x = phase_taps(g, 2);
  // In the order in which lay_out made classes.
  for (int tile = 0; tile < plan.channel_tiles; ++tile) {
    size_t next = 0;
    for (const PhaseTaps& pz : z) {
      for (const Columns& px : columns_of(plan, x)) {
        for (size_t iy = 0; iy < y.size(); ++next) {
          const Class& c = plan.classes[next];
          auto* block = reinterpret_cast<uint16_t*>(
              bytes.data() + plan.weights_at() + tile * plan.tile_weight_bytes + c.weight_offset);
          for (int band = 0; band < c.bands; ++band, ++iy) {
            block = pack_band(plan, model, tile, {pz, std::span(y).subspan(iy, 1), px},
                              c.resident != 0 && plan.joins_steps(), block);
          }
        }
      }
    }
  }
  return bytes;
}

}  // namespace volup::sm90
