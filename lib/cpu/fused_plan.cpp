// SPDX-License-Identifier: Apache-2.0
#include "cpu/fused_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/fused_simd.h"

namespace volup {
namespace {

// A band's copy should stay in the second-level cache beside the weights.
constexpr int64_t kCopyFloats = 24 * 1024;
// The sums of a tile should stay in the first-level cache beside the rows that they are made from.
constexpr int64_t kSumFloats = 4 * 1024;
// Those of the rows that softmax finishes together need not.
constexpr int64_t kSoftmaxFloats = 16 * 1024;
constexpr int64_t kLargestStride = 256;
constexpr int64_t kLargestScratchFloats = int64_t{1} << 28;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

// dense: a slot for every delta between the smallest and the largest, else one for each there is.
FusedAxis make_axis(const Problem& problem, int axis, bool dense) {
  FusedAxis a;
  a.stride = problem.geometry.stride[axis];
  a.in = problem.input[2 + axis];
  a.out = problem.conv_output[2 + axis];
  a.base = divide_up(a.out, a.stride);
  a.phase_begin.push_back(0);
  for (const Phase& phase : phases(problem.geometry, axis)) {
    for (const Tap& tap : phase.taps) {
      a.k.push_back(tap.k);
      a.delta.push_back(tap.delta);
    }
    a.phase_begin.push_back(static_cast<int32_t>(a.k.size()));
  }
  const auto [low, high] = std::minmax_element(a.delta.begin(), a.delta.end());
  a.first_delta = *low;
  if (dense) {
    for (int64_t delta = *low; delta <= *high; ++delta) a.slot_delta.push_back(delta);
  } else {
    a.slot_delta = a.delta;
    std::sort(a.slot_delta.begin(), a.slot_delta.end());
    a.slot_delta.erase(std::unique(a.slot_delta.begin(), a.slot_delta.end()), a.slot_delta.end());
  }
  for (const int64_t delta : a.delta) {
    const auto at = std::lower_bound(a.slot_delta.begin(), a.slot_delta.end(), delta);
    a.slot.push_back(static_cast<int32_t>(at - a.slot_delta.begin()));
  }
  return a;
}

int64_t reach(const ConvTranspose3d& g, int axis) {
  return (g.kernel[axis] - 1) * g.dilation[axis] / g.stride[axis] + 1;
}

bool has_pairs(const FusedAxis& x) {
  return x.stride == 2 && x.end(0) == 1 && x.end(1) == 3 && x.delta[2] == x.delta[0] &&
         x.delta[1] == x.delta[0] + 1;
}

void make_blocks(FusedPlan& plan) {
  const ConvTranspose3d& g = plan.problem.geometry;
  const int64_t per_group = g.out_per_group();
  const int64_t columns = divide_up(plan.x.base, plan.lanes);
  const int sums = fused_target(plan.isa).sums;
  // Two vectors along W share each weight's load; with few channels four do, so that enough sums
  // are under way to hide an FMA's latency.
  if (plan.pairs) {
    plan.vectors = columns == 1 ? 1 : 2;
    plan.block_channels = sums / (2 * plan.vectors);
  } else if (columns == 1) {
    plan.vectors = 1;
    plan.block_channels = 12;
  } else if (per_group <= sums / 4 && columns > 2) {
    plan.vectors = 4;
    plan.block_channels = sums / 4;
  } else {
    plan.vectors = 2;
    plan.block_channels = sums / 2;
  }
  const int64_t pieces = divide_up(per_group, plan.block_channels);
  const int64_t steps = g.taps() * g.in_per_group();
  int64_t weight = g.out_channels;
  for (int64_t group = 0; group < g.groups; ++group) {
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t begin = per_group * piece / pieces;
      const int64_t end = per_group * (piece + 1) / pieces;
      plan.blocks.push_back({group * per_group + begin, static_cast<int32_t>(end - begin),
                             group * g.in_per_group(), weight});
      weight += steps * (end - begin);
    }
  }
}

// Calls visit(tz, ty, tx, ci) for the taps and channels in of a group in the order of the steps.
template <typename Visit>
void for_each_product(const FusedPlan& plan, const Visit& visit) {
  const int64_t inputs = plan.problem.geometry.in_per_group();
  for (int64_t rz = 0; rz < plan.z.stride; ++rz) {
    for (int64_t ry = 0; ry < plan.y.stride; ++ry) {
      const auto for_each_row = [&](const auto& visit_row) {
        for (int32_t tz = plan.z.begin(rz); tz < plan.z.end(rz); ++tz) {
          for (int32_t ty = plan.y.begin(ry); ty < plan.y.end(ry); ++ty) visit_row(tz, ty);
        }
      };
      if (plan.pairs) {
        for_each_row([&](int32_t tz, int32_t ty) {
          for (int64_t ci = 0; ci < inputs; ++ci) {
            for (const int32_t tx : {0, 2, 1}) visit(tz, ty, tx, ci);
          }
        });
        continue;
      }
      if (plan.z.begin(rz) == plan.z.end(rz) || plan.y.begin(ry) == plan.y.end(ry)) continue;
      for (int64_t rx = 0; rx < plan.x.stride; ++rx) {
        for_each_row([&](int32_t tz, int32_t ty) {
          for (int32_t tx = plan.x.begin(rx); tx < plan.x.end(rx); ++tx) {
            for (int64_t ci = 0; ci < inputs; ++ci) visit(tz, ty, tx, ci);
          }
        });
      }
    }
  }
}

int32_t phase_of(const FusedAxis& axis, int32_t tap) {
  const auto after = std::upper_bound(axis.phase_begin.begin(), axis.phase_begin.end(), tap);
  return static_cast<int32_t>(after - axis.phase_begin.begin()) - 1;
}

void make_steps(FusedPlan& plan) {
  const ConvTranspose3d& g = plan.problem.geometry;
  const auto planes = static_cast<int64_t>(plan.z.slot_delta.size());
  for_each_product(plan, [&](int32_t tz, int32_t ty, int32_t tx, int64_t ci) {
    if (plan.pairs && tx != 0) return;
    const int64_t row =
        plan.y.slot[static_cast<size_t>(ty)] * planes + plan.z.slot[static_cast<size_t>(tz)];
    const int64_t offset =
        (row * g.in_channels + ci) * plan.pitch + plan.x.slot[static_cast<size_t>(tx)];
    plan.step_offset.push_back(static_cast<int32_t>(offset));
  });
}

int64_t channels_at_once(const FusedPlan& plan) {
  return couples_channels(plan.problem.epilogue.kind) ? plan.problem.geometry.out_channels
                                                      : int64_t{plan.block_channels};
}

// Sizes of a task of band rows and tile columns, in units of floats.
void lay_out(FusedPlan& plan, int64_t band, int64_t tile) {
  plan.band = band;
  plan.tile = tile;
  plan.bands = divide_up(plan.y.base, band);
  plan.tiles = divide_up(plan.x.base, tile);
  plan.pitch = round_up(tile + static_cast<int64_t>(plan.x.slot_delta.size()) - 1, plan.lanes);
  const int64_t rows = static_cast<int64_t>(plan.y.slot_delta.size()) + band - 1;
  constexpr int64_t kLine = 16;
  const EpilogueKind kind = plan.problem.epilogue.kind;
  const int64_t row_sums = channels_at_once(plan) * plan.x.stride * tile;
  const int64_t base_row_sums = row_sums * plan.y.stride;
  const bool whole_base_rows = !couples_channels(kind) || (plan.pairs && !reduces_channels(kind));
  const int64_t most_sums = couples_channels(kind) ? kSoftmaxFloats : kSumFloats;
  plan.group =
      whole_base_rows ? std::clamp(most_sums / base_row_sums, int64_t{1}, band) : int64_t{1};
  const int64_t group_sums = plan.group * (whole_base_rows ? base_row_sums : row_sums);
  plan.copy_floats = round_up(rows * plan.row_floats(), kLine);
  plan.sums_at = plan.copy_floats;
  plan.per_column_at = plan.sums_at + round_up(group_sums, kLine);
  const int64_t column_rows = reduces_channels(kind) ? 2 * band : 2 + plan.group * plan.y.stride;
  plan.row_at = plan.per_column_at + round_up(column_rows * plan.x.stride * tile, kLine);
  plan.runs_at = plan.row_at + round_up(2 * plan.x.stride * tile, kLine);
  // Workers must not share a line, nor lie a multiple of 4096 bytes apart.
  plan.worker_floats = round_up(plan.runs_at + 2 * std::max(plan.z.taps(), int32_t{1}), 64) + kLine;
}

// For each phase and channel the sum of |weight|; the largest of all.
float largest_phase_sum(const FusedPlan& plan, const float* packed) {
  double largest = 0;
  for (const FusedBlock& block : plan.blocks) {
    const auto count = static_cast<size_t>(block.count);
    // Pairs of phases along W take turns.
    std::vector<double> sums(2 * count);
    const float* w = packed + block.weight;
    int32_t last[3] = {-1, -1, -1};
    for_each_product(plan, [&](int32_t tz, int32_t ty, int32_t tx, int64_t) {
      const int32_t rx = phase_of(plan.x, tx);
      const int32_t phase[3] = {phase_of(plan.z, tz), phase_of(plan.y, ty), plan.pairs ? 0 : rx};
      if (!std::equal(phase, phase + 3, last)) std::fill(sums.begin(), sums.end(), 0.0);
      std::copy(phase, phase + 3, last);
      double* of_phase = sums.data() + (plan.pairs ? static_cast<size_t>(rx) * count : 0);
      for (size_t c = 0; c < count; ++c) {
        largest = std::max(largest, of_phase[c] += std::abs(double{*w++}));
      }
    });
  }
  return static_cast<float>(largest);
}

void append_base_2(const FusedPlan& plan, std::vector<float>& packed) {
  constexpr double kLog2E = 1.4426950408889634;
  const size_t count = packed.size();
  packed.reserve(2 * count + 2);
  for (size_t i = 0; i < count; ++i) {
    packed.push_back(static_cast<float>(kLog2E * double{packed[i]}));
  }
  const float* scaled = packed.data() + count;
  float bias = 0;
  for (int64_t c = 0; c < plan.problem.geometry.out_channels; ++c) {
    bias = std::max(bias, std::abs(scaled[c]));
  }
  packed.push_back(bias);
  packed.push_back(largest_phase_sum(plan, scaled));
}

int64_t choose_tile(const FusedPlan& plan) {
  const int64_t unit = int64_t{plan.vectors} * plan.lanes;
  const int64_t wanted =
      std::max(unit, kSumFloats / (channels_at_once(plan) * plan.x.stride) / unit * unit);
  // Tiles of nearly equal width.
  const int64_t pieces = divide_up(plan.x.base, wanted);
  return round_up(divide_up(plan.x.base, pieces), plan.lanes);
}

}  // namespace

int64_t FusedPlan::first_step(int64_t rz, int64_t ry) const {
  const int64_t planes_before = z.begin(rz) * int64_t{y.taps()};
  const int64_t rows_before = int64_t{z.end(rz) - z.begin(rz)} * y.begin(ry);
  return (planes_before + rows_before) * (pairs ? 1 : x.taps()) * problem.geometry.in_per_group();
}

Refusal refuse_fused(const Problem& problem) {
  const ConvTranspose3d& g = problem.geometry;
  // Zero padding times a weight must be zero.
  VOLUP_REFUSE_IF(!problem.weights.finite, "needs finite weights, got NaN or infinity");
  // Some divisions are products with the reciprocal.
  VOLUP_REFUSE_IF(!(std::abs(problem.epilogue.divisor) >= 0x1p-60f &&
                    std::abs(problem.epilogue.divisor) <= 0x1p60f),
                  "needs a divisor of magnitude 2^-60 to 2^60, got ", problem.epilogue.divisor);
  for (int axis = 0; axis < 3; ++axis) {
    VOLUP_REFUSE_IF(g.stride[axis] > kLargestStride, "needs strides up to ", kLargestStride,
                    ", got ", g.stride);
  }
  // The smallest task: one base row of one vector.
  const int64_t planes = std::min(g.kernel[0], reach(g, 0));
  const int64_t rows = std::min(g.kernel[1], reach(g, 1));
  const auto row = static_cast<double>(planes * rows) * static_cast<double>(g.in_channels) *
                   static_cast<double>(reach(g, 2) + 32);
  const auto sums = 32.0 * static_cast<double>(g.out_channels) * static_cast<double>(g.stride[2]);
  const auto steps = static_cast<double>(g.taps()) * static_cast<double>(g.in_per_group());
  for (const double floats : {row, sums, steps}) {
    VOLUP_REFUSE_IF(floats > static_cast<double>(kLargestScratchFloats),
                    "needs scratch of at most ", kLargestScratchFloats,
                    " floats a thread for the input rows, sums and taps of one output row, got ",
                    floats);
  }
  return {};
}

Result<FusedPlan> plan_fused(const Problem& problem, const DeviceProperties& device, size_t limit) {
  FusedPlan plan;
  plan.problem = problem;
  plan.isa = device.isa;
  plan.lanes = fused_target(device.isa).lanes;
  plan.z = make_axis(problem, 0, false);
  plan.x = make_axis(problem, 2, true);
  // Rows between the taps of a dilated kernel are worth copying if other rows of the band read
  // them.
  const bool dense =
      reach(problem.geometry, 1) <= 2 * std::min(problem.geometry.kernel[1], int64_t{8}) + 8;
  plan.y = make_axis(problem, 1, dense);
  plan.pairs = has_pairs(plan.x);
  plan.base_2 = reduces_channels(problem.epilogue.kind) ||
                (plan.pairs && problem.epilogue.kind == EpilogueKind::kSoftmaxSigmoid);
  make_blocks(plan);

  const int64_t tile = choose_tile(plan);
  lay_out(plan, 1, tile);
  int64_t band = 1;
  if (dense) {
    const auto reach_rows = static_cast<int64_t>(plan.y.slot_delta.size());
    band = std::clamp(kCopyFloats / plan.row_floats() - reach_rows + 1, int64_t{1}, plan.y.base);
    // Enough tasks to keep the shares of the threads nearly equal.
    const int64_t others = std::max<int64_t>(problem.input[0], 1) * plan.z.base * plan.tiles;
    const int64_t wanted_bands = divide_up(8 * int64_t{device.threads}, others);
    band = std::max<int64_t>(1, std::min(band, plan.y.base / std::max<int64_t>(1, wanted_bands)));
    band = divide_up(plan.y.base, divide_up(plan.y.base, band));
  }
  const auto bytes = [&] {
    return static_cast<size_t>(plan.worker_floats) * sizeof(float) *
           static_cast<size_t>(device.threads);
  };
  const int64_t candidates[][2] = {{band, tile}, {1, tile}, {1, plan.lanes}};
  for (const auto& [rows, columns] : candidates) {
    lay_out(plan, rows, columns);
    if (bytes() <= limit && plan.worker_floats < std::numeric_limits<int32_t>::max()) break;
  }
  if (bytes() > limit) {
    return Status(VOLUP_STATUS_OUT_OF_MEMORY,
                  cat("workspace limit: got ", limit, " bytes, need ", bytes(), " (cpu/fused, ",
                      device.threads, " threads)"));
  }
  make_steps(plan);

  // Where the tensors do not fit into the last-level cache, a store need not read the line that it
  // replaces; but where a line can be asked for long before, that costs less. (A softmax asks too
  // where its stores are plain, and past the caches they are a little faster on Zen 3.)
  double elements = 0;
  for (const Shape5& shape : {problem.input, problem.output}) {
    double count = shape == problem.output && takes_add(problem.epilogue.kind) ? 2 : 1;
    for (const int64_t size : shape) count *= static_cast<double>(size);
    elements += count;
  }
  const bool asks_before = plan.pairs && !couples_channels(problem.epilogue.kind);
  plan.stream = !asks_before && elements * static_cast<double>(element_size(problem.io)) >
                                    static_cast<double>(device.last_level_cache_bytes);
  return plan;
}

std::vector<float> pack_fused(const FusedPlan& plan, const float* weight, const float* bias) {
  const ConvTranspose3d& g = plan.problem.geometry;
  const int64_t per_group = g.out_per_group();
  std::vector<float> packed(static_cast<size_t>(g.out_channels + g.weight_count()));
  if (bias != nullptr) std::copy_n(bias, g.out_channels, packed.begin());
  for (const FusedBlock& block : plan.blocks) {
    const int64_t first = block.channel % per_group;
    float* to = packed.data() + block.weight;
    for_each_product(plan, [&](int32_t tz, int32_t ty, int32_t tx, int64_t ci) {
      const int64_t k =
          (plan.z.k[static_cast<size_t>(tz)] * g.kernel[1] + plan.y.k[static_cast<size_t>(ty)]) *
              g.kernel[2] +
          plan.x.k[static_cast<size_t>(tx)];
      const int64_t in = block.input_channel + ci;
      for (int64_t co = 0; co < block.count; ++co) {
        *to++ = weight[(in * per_group + first + co) * g.taps() + k];
      }
    });
  }
  if (plan.base_2) append_base_2(plan, packed);
  return packed;
}

}  // namespace volup
