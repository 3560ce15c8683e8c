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
std::vector<Columns> columns_of(const Plan& plan, const std::vector<PhaseTaps>& x) {
  if (x.size() == 1) return {{{&x[0], &x[0]}, {0, kTileEdge}, plan.narrow ? 1 : 2}};
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
  int64_t z_min = z.taps[0].delta, z_max = z_min;
  for (int i = 0; i < c.planes; ++i) {
    c.delta_z[i] = static_cast<int32_t>(z.taps[i].delta);
    z_min = std::min(z_min, z.taps[i].delta);
    z_max = std::max(z_max, z.taps[i].delta);
  }
  c.z_min = static_cast<int32_t>(z_min);
  c.window = static_cast<int32_t>(z_max - z_min + 1);

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
  const int64_t piece = std::min<int64_t>(c.slab_y * c.slab_x * kEights, kPieceTasks) * kTaskBytes;
  const int64_t box = int64_t{kChunk} * plan.box_y * plan.box_x * plan.element;
  const int64_t raw_slot = std::max(piece, plan.bulk ? box : 0);
  c.weight_bytes = block * plan.chunks * c.planes * (c.steps[0] + c.steps[1]);
  // A slab more than the window, so that one is filled while the others are multiplied.
  const int64_t window = int64_t{c.window} * plan.chunks + 1;
  for (const bool resident : {true, false}) {
    if (plan.bulk && !resident) continue;
    const int64_t weights = resident ? c.weight_bytes : kSlots * block;
    if (resident && c.weight_bytes / block > kMaxResidentSteps) continue;
    for (const int raw_slots : {kMaxRawSlots, kMaxRawSlots - 1}) {
      const int64_t stages =
          std::min<int64_t>(kMaxStages, (available - weights - raw_slots * raw_slot) / slab);
      // Through the ring all warpgroups take their tiles' slabs at the same time.
      if (stages < (resident ? window : kConsumers)) continue;
      c.resident = resident;
      c.raw_slots = raw_slots;
      c.raw_slot_bytes = static_cast<int32_t>(raw_slot);
      c.stages = static_cast<int32_t>(stages);
      return true;
    }
  }
  return false;
}

// The classes of a plan and how each uses shared memory. False where not all of them fit.
bool lay_out(Plan& plan, const ConvTranspose3d& g, int64_t available) {
  const auto z = phase_taps(g, 0), y = phase_taps(g, 1), x = phase_taps(g, 2);
  plan.classes.clear();
  for (int tile = 0; tile < plan.channel_tiles; ++tile) {
    for (const PhaseTaps& pz : z) {
      for (const PhaseTaps& py : y) {
        for (const Columns& px : columns_of(plan, x)) {
          plan.classes.push_back(make_class(pz, py, px, tile * plan.channels));
        }
      }
    }
  }
  // Bulk copies start at whole 16 bytes and move whole ones; their boxes are the same for all
  // classes.
  plan.bulk = true;
  plan.box_x = plan.box_y = 0;
  const int whole = 16 / plan.element;
  for (const Class& c : plan.classes) {
    const int start = c.x_min & (whole - 1);
    plan.box_x = std::max(plan.box_x, (start + c.slab_x + whole - 1) / whole * whole);
    plan.box_y = std::max(plan.box_y, c.slab_y);
    plan.bulk = plan.bulk && c.slab_x * c.slab_y * kEights <= kPieceTasks;
  }
  const auto fit_all = [&] {
    plan.weight_bytes = 0;
    for (Class& c : plan.classes) {
      if (!fit(c, plan, available)) return false;
      c.weight_offset = plan.weight_bytes;
      plan.weight_bytes += c.weight_bytes;
    }
    return true;
  };
  if (plan.bulk && fit_all()) return true;
  plan.bulk = false;
  return fit_all();
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
        tiles >= int64_t{1} << 28) {
      return cat("needs fewer than 2^28 tiles, got output ", problem.conv_output);
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
  plan.element = static_cast<int>(element_size(problem.io));
  bool fits = lay_out(plan, g, available);
  if (!fits && g.stride[2] == 1) {
    plan.narrow = true;
    fits = lay_out(plan, g, available);
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
        for (const Columns& px : columns_of(plan, x)) {
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
double tile_cost(const Plan& plan, const Class& c, bool adds) {
  const int parts = parts_of(plan.engine);
  const int products = parts * (parts + 1) / 2;
  const double multiply = products * plan.chunks * kChunk / 16.0 * c.planes *
                          (c.steps[0] + c.steps[1]) * plan.channels / 2;
  const double finish = adds ? 3600 : 2400;
  return std::max(multiply, finish) + 0.1 * std::min(multiply, finish);
}

// Blocks of the grid, given to classes.
struct Deal {
  std::vector<int64_t> blocks;  // a class
  double time = 0;              // of the class that is worst off
};

// Blocks in proportion to the classes' costs, at least one each and at most one a unit; one after
// the other to the class that is worst off. segment: tiles along z of a unit where weights stay.
Deal deal_blocks(const Plan& plan, const Parameters& p, int64_t segment, int64_t blocks) {
  struct Load {
    int64_t units;
    double cost;  // of a unit
  };
  std::vector<Load> loads;
  for (const Class& c : plan.classes) {
    int64_t x = phase_count(p.ow, p.stride_x, c.phase_x[0]);
    if (c.accumulators == 2) x = std::max(x, phase_count(p.ow, p.stride_x, c.phase_x[1]));
    const int64_t columns =
        (x + p.tile_x - 1) / p.tile_x *
        ((phase_count(p.oh, p.stride_y, c.phase_y) + kTileEdge - 1) / kTileEdge) * p.n;
    const int64_t z = phase_count(p.od, p.stride_z, c.phase_z);
    const double tile = tile_cost(plan, c, takes_add(p.epilogue.kind));
    if (c.resident) {
      // The planes around a segment cost a little more than none.
      loads.push_back({columns * ((z + segment - 1) / segment),
                       tile * (static_cast<double>(std::min(segment, z)) + 0.1 * c.window)});
    } else {
      loads.push_back({(columns * z + kConsumers - 1) / kConsumers, tile * kConsumers});
    }
  }
  Deal deal;
  deal.blocks.assign(loads.size(), 1);
  const auto time = [&](size_t i) {
    const int64_t rounds = (loads[i].units + deal.blocks[i] - 1) / deal.blocks[i];
    return loads[i].cost * static_cast<double>(rounds);
  };
  for (int64_t spare = blocks - static_cast<int64_t>(loads.size()); spare > 0; --spare) {
    size_t worst = loads.size();
    for (size_t i = 0; i < loads.size(); ++i) {
      if (deal.blocks[i] < loads[i].units && (worst == loads.size() || time(i) > time(worst))) {
        worst = i;
      }
    }
    if (worst == loads.size()) break;
    ++deal.blocks[worst];
  }
  for (size_t i = 0; i < loads.size(); ++i) {
    deal.time = std::max(deal.time, time(i));
    if (loads[i].units == 0) deal.blocks[i] = 0;
  }
  return deal;
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
  p.tile_x = g.stride[2] == 1 && !plan.narrow ? 2 * kTileEdge : kTileEdge;
  p.chunks = plan.chunks;
  p.bulk = plan.bulk && problem.input[4] * plan.element % 16 == 0;
  p.box_x = plan.box_x;
  p.box_y = plan.box_y;
  p.paired = g.stride[2] == 2 && p.ow % 2 == 0;
  p.even_count = p.n % 2 == 0 || p.ci % 2 == 0 || p.id % 2 == 0 || p.ih % 2 == 0 || p.iw % 2 == 0;
  p.class_count = static_cast<int32_t>(plan.classes.size());

  Deal best;
  for (int64_t segment = 1;; segment *= 2) {
    Deal deal = deal_blocks(plan, p, segment, device.multiprocessors);
    if (segment == 1 || deal.time < best.time) {
      best = std::move(deal);
      p.segment = narrow(segment);
    }
    if (segment >= p.od) break;
  }
  for (int32_t i = 0; i < p.class_count; ++i) {
    p.first_block[i + 1] = p.first_block[i] + narrow(best.blocks[i]);
  }
  *blocks = p.first_block[p.class_count];
  return p;
}

}  // namespace volup::sm90
