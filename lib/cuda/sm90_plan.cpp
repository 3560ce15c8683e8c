// SPDX-License-Identifier: Apache-2.0
//
// How "cuda/sm90" decides on the host: what it refuses, classes and their use of shared memory, the
// packed weights and the deal of blocks. What a block then makes of it is device code.
#include "cuda/sm90_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "half.h"

namespace volup::sm90 {

namespace {

int parts_of(Engine engine) {
  switch (engine) {
    case Engine::kBf16x3:
      return kPartsOf<Engine::kBf16x3>;
    case Engine::kBf16x2:
      return kPartsOf<Engine::kBf16x2>;
    case Engine::kBf16x1:
    case Engine::kFp16x1:
      break;
  }
  return 1;
}

// The engine that keeps a precision's promise for an I/O type; nothing where there is none.
std::optional<Engine> engine_for(Precision precision, DType io) {
  if (io == DType::kFp32) {
    switch (precision) {
      case Precision::kFp32:
        return Engine::kBf16x3;
      case Precision::kTf32:
        return Engine::kBf16x2;
      case Precision::kBf16:
        return Engine::kBf16x1;
      case Precision::kFp16:
        return std::nullopt;
    }
  }
  if (io == DType::kFp16 && precision == Precision::kFp16) return Engine::kFp16x1;
  if (io == DType::kBf16 && precision == Precision::kBf16) return Engine::kBf16x1;
  return std::nullopt;
}

// Taps of one phase; of one tap of zero weight where there is none.
struct PhaseTaps {
  int32_t r = 0;
  std::vector<Tap> taps;
  bool empty = false;
};
std::vector<PhaseTaps> phase_taps(const ConvTranspose3d& geometry, int axis) {
  std::vector<PhaseTaps> all;
  for (Phase& phase : phases(geometry, axis)) {
    PhaseTaps taps{static_cast<int32_t>(phase.r), std::move(phase.taps), false};
    taps.empty = taps.taps.empty();
    if (taps.empty) taps.taps = {Tap{0, 0}};
    all.push_back(std::move(taps));
  }
  return all;
}

// The phases that one class serves along x: accumulator j has phase r[j], shifted by shift[j].
struct Columns {
  const PhaseTaps* phase[2];
  int32_t shift[2];
  int accumulators;
};
std::vector<Columns> columns_of(const std::vector<PhaseTaps>& x) {
  if (x.size() == 1) return {{{&x[0], &x[0]}, {0, kTileEdge}, 2}};
  std::vector<Columns> columns;
  for (size_t i = 0; i < x.size(); i += 2) {
    const bool pair = i + 1 < x.size();
    columns.push_back({{&x[i], &x[pair ? i + 1 : i]}, {0, 0}, pair ? 2 : 1});
  }
  return columns;
}

Class make_class(const PhaseTaps& z, const PhaseTaps& y, const Columns& x, int first_channel) {
  Class c = {};
  c.phase_z = z.r;
  c.phase_y = y.r;
  c.accumulators = x.accumulators;
  c.first_channel = first_channel;
  c.planes = static_cast<int32_t>(z.taps.size());
  for (int i = 0; i < c.planes; ++i) c.delta_z[i] = static_cast<int32_t>(z.taps[i].delta);

  int64_t y_min = y.taps[0].delta, y_max = y_min;
  for (const Tap& tap : y.taps) {
    y_min = std::min(y_min, tap.delta);
    y_max = std::max(y_max, tap.delta);
  }
  int64_t x_min = x.phase[0]->taps[0].delta, x_max = x_min;
  for (int j = 0; j < x.accumulators; ++j) {
    for (const Tap& tap : x.phase[j]->taps) {
      x_min = std::min(x_min, tap.delta);
      x_max = std::max(x_max, tap.delta + x.shift[j]);
    }
  }
  c.y_min = static_cast<int32_t>(y_min);
  c.x_min = static_cast<int32_t>(x_min);
  c.slab_y = static_cast<int32_t>(kTileEdge + y_max - y_min);
  c.slab_x = static_cast<int32_t>(kTileEdge + x_max - x_min);
  for (int j = 0; j < 2; ++j) {
    c.phase_x[j] = x.phase[j]->r;
    c.shift_x[j] = x.shift[j];
    c.empty[j] = z.empty || y.empty || x.phase[j]->empty;
    if (j >= x.accumulators) continue;
    for (const Tap& ty : y.taps) {
      for (const Tap& tx : x.phase[j]->taps) {
        c.step_offset[j][c.steps[j]++] =
            static_cast<int32_t>((ty.delta - y_min) * c.slab_x + tx.delta - x_min + x.shift[j]);
      }
    }
  }
  return c;
}

// Settles how a class uses shared memory. False where even the smallest way does not fit.
bool fit(Class& c, const Plan& plan, int64_t available) {
  const int64_t block = int64_t{2} * parts_of(plan.engine) * kChunk * plan.channels;
  const int64_t slab = int64_t{2} * parts_of(plan.engine) * kChunk * c.slab_y * c.slab_x;
  const int64_t tile = slab * plan.chunks * c.planes;
  c.weight_bytes = block * plan.chunks * c.planes * (c.steps[0] + c.steps[1]);
  const int64_t ring = kSlots * block;
  c.resident = 1;
  if (c.weight_bytes + 2 * tile <= available && c.weight_bytes / block <= kMaxResidentSteps) {
    c.whole = 1;
  } else {
    c.resident = 0;
    c.whole = ring + 2 * tile <= available;
  }
  c.stage_bytes = static_cast<int32_t>(c.whole ? tile : slab);
  const int64_t weights = c.resident ? c.weight_bytes : ring;
  // A power of two, so that a fill's stage is a mask away.
  const int64_t stages = std::min<int64_t>(kMaxStages, (available - weights) / c.stage_bytes);
  c.stages_log2 = stages < 2 ? 0 : std::bit_width(static_cast<uint64_t>(stages)) - 1;
  return stages >= 2;
}

}  // namespace

Refusal refuse(const Problem& problem, const DeviceProperties& device) {
  const ConvTranspose3d& g = problem.geometry;
  VOLUP_REFUSE_IF(device.type != DeviceType::kCuda || device.compute_capability != 90,
                  "needs compute capability 9.0, got ", device.compute_capability);
  VOLUP_REFUSE_IF(problem.epilogue.kind == EpilogueKind::kLogsumexpSwishClamp ||
                      static_cast<int>(problem.epilogue.kind) >= kEpilogueCount,
                  "has no epilogue ", name_of(problem.epilogue.kind));
  VOLUP_REFUSE_IF(problem.epilogue.kind == EpilogueKind::kAddHardswish &&
                      !(problem.epilogue.clamp_min == 0 && problem.epilogue.divisor > 0 &&
                        problem.epilogue.clamp_max == problem.epilogue.divisor),
                  "needs a gate clamped to [0, divisor]");
  VOLUP_REFUSE_IF(!engine_for(problem.precision, problem.io), "has no ", name_of(problem.precision),
                  " products with ", name_of(problem.io), " I/O");
  VOLUP_REFUSE_IF(!problem.weights.finite, "needs finite weights");
  VOLUP_REFUSE_IF(g.groups != 1, "needs one group, got ", g.groups);
  for (int axis = 0; axis < 3; ++axis) {
    VOLUP_REFUSE_IF(g.kernel[axis] > 5, "needs kernel sizes to 5, got ", g.kernel);
    VOLUP_REFUSE_IF(g.stride[axis] > 3, "needs strides to 3, got ", g.stride);
    VOLUP_REFUSE_IF(g.dilation[axis] > 2, "needs dilations to 2, got ", g.dilation);
    VOLUP_REFUSE_IF(g.padding_begin[axis] > 64, "needs padding to 64, got ", g.padding_begin);
  }
  VOLUP_REFUSE_IF(g.in_channels < 4, "needs 4 input channels or more, got ", g.in_channels);
  // Rounding towards zero in the tensor cores grows with the sum's length.
  VOLUP_REFUSE_IF(g.in_channels * g.taps() > 32 * 1024, "needs in_channels * taps to 32768, got ",
                  g.in_channels * g.taps());
  // A softmax needs all channels of a voxel in one tile.
  VOLUP_REFUSE_IF(problem.epilogue.kind == EpilogueKind::kSoftmaxSigmoid && g.out_channels > 64,
                  "needs at most 64 channels for softmax, got ", g.out_channels);
  for (int axis = 0; axis < 5; ++axis) {
    VOLUP_REFUSE_IF(problem.input[axis] >= 1 << 30 || problem.conv_output[axis] >= 1 << 30,
                    "needs sizes below 2^30, got ", problem.input);
  }
  const Plan plan = make_plan(problem, device);
  VOLUP_REFUSE_IF(plan.classes.size() > kMaxClasses, "needs at most ", kMaxClasses,
                  " phases x channel tiles, got ", plan.classes.size());
  VOLUP_REFUSE_IF(plan.shared_bytes == 0, "needs more shared memory than ",
                  device.shared_memory_bytes, " bytes");
  int64_t tiles = problem.conv_output[0];
  for (int axis = 2; axis < 5; ++axis) {
    if (!checked_multiply(
            tiles,
            axis == 2 ? problem.conv_output[axis] : problem.conv_output[axis] / kTileEdge + 1,
            &tiles) ||
        tiles >= int64_t{1} << 31) {
      return cat("needs fewer than 2^31 tiles, got output ", problem.conv_output);
    }
  }
  return std::nullopt;
}

Plan make_plan(const Problem& problem, const DeviceProperties& device) {
  const ConvTranspose3d& g = problem.geometry;
  Plan plan;
  plan.engine = *engine_for(problem.precision, problem.io);
  plan.chunks = static_cast<int>((g.in_channels + kChunk - 1) / kChunk);
  plan.channel_tiles = static_cast<int>((g.out_channels + plan.channels - 1) / plan.channels);
  const auto available =
      static_cast<int64_t>(device.shared_memory_bytes) - static_cast<int64_t>(kSharedHeader);
  const auto z = phase_taps(g, 0), y = phase_taps(g, 1), x = phase_taps(g, 2);
  bool fits = true;
  for (int tile = 0; tile < plan.channel_tiles; ++tile) {
    for (const PhaseTaps& pz : z) {
      for (const PhaseTaps& py : y) {
        for (const Columns& px : columns_of(x)) {
          Class c = make_class(pz, py, px, tile * plan.channels);
          fits = fit(c, plan, available) && fits;
          c.weight_offset = plan.weight_bytes;
          plan.weight_bytes += c.weight_bytes;
          plan.classes.push_back(c);
        }
      }
    }
  }
  plan.shared_bytes = fits ? device.shared_memory_bytes : 0;
  return plan;
}

namespace {

// Parts of a weight, largest first.
void split(Engine engine, float value, uint16_t (&part)[3]) {
  if (engine == Engine::kFp16x1) {
    part[0] = fp16_from(value);
    return;
  }
  for (int i = 0; i < parts_of(engine); ++i) {
    part[i] = bf16_from(value);
    value -= float_from_bf16(part[i]);
  }
}

}  // namespace

Result<std::vector<std::byte>> pack(const Plan& plan, const Model& model) {
  const ConvTranspose3d& g = model.geometry();
  std::vector<std::byte> bytes(plan.packed_bytes());
  std::memcpy(bytes.data() + plan.classes_at(), plan.classes.data(),
              plan.classes.size() * sizeof(Class));

  const bool couples = couples_channels(model.epilogue().kind);
  auto* bias = reinterpret_cast<float*>(bytes.data() + plan.bias_at());
  for (int64_t co = 0; co < int64_t{plan.channel_tiles} * plan.channels; ++co) {
    bias[co] = co < g.out_channels ? (model.bias() != nullptr ? model.bias()[co] : 0.0f)
                                   : (couples ? -INFINITY : 0.0f);
  }

  const auto z = phase_taps(g, 0), y = phase_taps(g, 1), x = phase_taps(g, 2);
  const int parts = parts_of(plan.engine);
  size_t next = 0;
  for (int tile = 0; tile < plan.channel_tiles; ++tile) {
    for (const PhaseTaps& pz : z) {
      for (const PhaseTaps& py : y) {
        for (const Columns& px : columns_of(x)) {
          const Class& c = plan.classes[next++];
          auto* block =
              reinterpret_cast<uint16_t*>(bytes.data() + plan.weights_at() + c.weight_offset);
          for (int chunk = 0; chunk < plan.chunks; ++chunk) {
            for (const Tap& tz : pz.taps) {
              for (int j = 0; j < px.accumulators; ++j) {
                for (const Tap& ty : py.taps) {
                  for (const Tap& tx : px.phase[j]->taps) {
                    const int64_t tap = (tz.k * g.kernel[1] + ty.k) * g.kernel[2] + tx.k;
                    for (int k = 0; k < kChunk; ++k) {
                      const int64_t ci = int64_t{chunk} * kChunk + k;
                      for (int n = 0; n < plan.channels; ++n) {
                        const int64_t co = c.first_channel + n;
                        if (c.empty[j] || ci >= g.in_channels || co >= g.out_channels) continue;
                        const float value =
                            model.weight()[(ci * g.out_channels + co) * g.taps() + tap];
                        uint16_t part[3] = {};
                        split(plan.engine, value, part);
                        for (int i = 0; i < parts; ++i) {
                          const int row = (i * plan.channels + n) * kRowBytes;
                          const int eight = (k / 8) ^ (row >> 7 & 3);
                          block[row / 2 + eight * 8 + k % 8] = part[i];
                        }
                      }
                    }
                    block += int64_t{parts} * kChunk * plan.channels;
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return bytes;
}

namespace {

// Time of a tile of a class in clocks: products against what each tile costs beside them, measured
// loosely; decides the deal of blocks alone.
double tile_cost(const Plan& plan, const Class& c) {
  const int parts = parts_of(plan.engine);
  const int products = parts * (parts + 1) / 2;
  const double multiply = products * plan.chunks * kChunk / 16.0 * c.planes *
                          (c.steps[0] + c.steps[1]) * plan.channels / 2;
  constexpr double kFinish = 2400;
  return std::max(multiply, kFinish) + 0.1 * std::min(multiply, kFinish);
}

}  // namespace

Parameters make_parameters(const Plan& plan, const Problem& problem, const DeviceProperties& device,
                           int* blocks) {
  const ConvTranspose3d& g = problem.geometry;
  Parameters p = {};
  p.epilogue = problem.epilogue;
  p.gate_scale = 1.0f / problem.epilogue.divisor;
  p.gate_shift = problem.epilogue.shift * p.gate_scale;
  const auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  p.n = narrow(problem.input[0]);
  p.ci = narrow(problem.input[1]);
  p.id = narrow(problem.input[2]);
  p.ih = narrow(problem.input[3]);
  p.iw = narrow(problem.input[4]);
  p.co = narrow(problem.conv_output[1]);
  p.od = narrow(problem.conv_output[2]);
  p.oh = narrow(problem.conv_output[3]);
  p.ow = narrow(problem.conv_output[4]);
  p.stride_z = narrow(g.stride[0]);
  p.stride_y = narrow(g.stride[1]);
  p.stride_x = narrow(g.stride[2]);
  p.tile_x = g.stride[2] == 1 ? 2 * kTileEdge : kTileEdge;
  p.chunks = plan.chunks;
  p.paired = g.stride[2] == 2 && p.ow % 2 == 0;
  p.class_count = static_cast<int32_t>(plan.classes.size());

  // Blocks in proportion to the classes' costs, at least one each and at most one a group of tiles;
  // one after the other to the class that is worst off.
  const int64_t count = p.class_count;
  std::vector<int64_t> groups(count), given(count, 1);
  for (int64_t i = 0; i < count; ++i) {
    const Class& c = plan.classes[i];
    int64_t x = phase_count(p.ow, p.stride_x, c.phase_x[0]);
    if (c.accumulators == 2) x = std::max(x, phase_count(p.ow, p.stride_x, c.phase_x[1]));
    const int64_t tiles = (x + p.tile_x - 1) / p.tile_x *
                          ((phase_count(p.oh, p.stride_y, c.phase_y) + kTileEdge - 1) / kTileEdge) *
                          phase_count(p.od, p.stride_z, c.phase_z) * p.n;
    groups[i] = (tiles + kConsumers - 1) / kConsumers;
  }
  const auto time = [&](int64_t i) {
    const int64_t rounds = (groups[i] + given[i] - 1) / given[i];
    return tile_cost(plan, plan.classes[i]) * static_cast<double>(rounds);
  };
  for (int64_t spare = device.multiprocessors - count; spare > 0; --spare) {
    int64_t worst = -1;
    for (int64_t i = 0; i < count; ++i) {
      if (given[i] < groups[i] && (worst < 0 || time(i) > time(worst))) worst = i;
    }
    if (worst < 0) break;
    ++given[worst];
  }
  for (int64_t i = 0; i < count; ++i) {
    p.first_block[i + 1] = p.first_block[i] + narrow(groups[i] == 0 ? 0 : given[i]);
  }
  *blocks = p.first_block[count];
  return p;
}

}  // namespace volup::sm90
