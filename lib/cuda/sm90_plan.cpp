// SPDX-License-Identifier: Apache-2.0
//
// How "cuda/sm90" decides on the host: classes and their use of shared memory, and the deal of
// blocks. What a block then makes of it is device code; what is refused, sm90_refusals.cpp.
#include "cuda/sm90_plan.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "cuda/sm90_steps.h"

namespace volup::sm90 {

namespace {

// Appends the bands of the class to *bands.
Class make_class(const ClassPhases& phases, const Plan& plan, bool joint,
                 std::vector<Band>* bands) {
  const int chunks = plan.chunks;
  const auto& [z, y, x] = phases;
  Class c = {};
  c.first_band = static_cast<int32_t>(bands->size());
  c.bands = static_cast<int32_t>(y.size());
  c.phase_z = z.r;
  c.accumulators = x.accumulators;
  c.planes = static_cast<int32_t>(z.taps.size());
  int64_t z_min = z.taps[0].delta, z_max = z_min;
  for (int i = 0; i < c.planes; ++i) {
    c.delta_z[i] = static_cast<int32_t>(z.taps[i].delta);
    z_min = std::min(z_min, z.taps[i].delta);
    z_max = std::max(z_max, z.taps[i].delta);
  }
  c.z_min = static_cast<int32_t>(z_min);
  c.window = static_cast<int32_t>(z_max - z_min + 1);
  for (int i = 0; i < c.planes; ++i) c.plane_of[i] = c.delta_z[i] - c.z_min;

  int64_t y_min = y[0].taps[0].delta, y_max = y_min;
  for (const PhaseTaps& phase : y) {
    for (const Tap& tap : phase.taps) {
      y_min = std::min(y_min, tap.delta);
      y_max = std::max(y_max, tap.delta);
    }
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
  c.slab_y = static_cast<int32_t>(kSquareEdge + y_max - y_min);
  c.slab_x = static_cast<int32_t>(plan.squares * kSquareEdge + x_max - x_min);
  c.positions = c.slab_y * c.slab_x;
  c.slab_bytes = parts_of(plan.engine) * kRowBytes * c.positions;
  for (int j = 0; j < 2; ++j) {
    c.phase_x[j] = x.phase[j]->r;
    c.shift_x[j] = x.shift[j];
  }
  for (const PhaseTaps& phase : y) {
    Band band = {};
    band.phase_y = phase.r;
    band.first_block = c.weight_blocks;
    for (int j = 0; j < 2; ++j) {
      band.empty[j] = z.empty || phase.empty || x.phase[j]->empty;
    }
    for (const BandStep& step : steps_of(phase, x, joint)) {
      const StepKind kind = step.kind();
      const int j = kind == kSecond;
      const int64_t row =
          (step.y->delta - y_min) * c.slab_x + step.x[j]->delta - x_min + x.shift[j];
      band.step_at[kind][band.steps[kind]++] = static_cast<uint16_t>(row * (kRowBytes / 16));
    }
    c.weight_blocks += chunks * c.planes * band.blocks();
    bands->push_back(band);
  }
  return c;
}

constexpr int64_t kBoxAlignment = 128;   // of boxes of outputs in shared memory
constexpr int64_t kAddAlignment = 1024;  // of slots of add, which are swizzled
constexpr int64_t round_down(int64_t bytes, int64_t to) { return bytes / to * to; }

// Bytes of a slot of raw x and of a block of weights, and slabs that are needed at a time.
struct Needs {
  int64_t raw_slot, window, block;
};

// Weights, raw x and stages of a class. False where even the smallest way does not fit.
bool use(Class& c, const Plan& plan, const Needs& needs, int64_t available) {
  for (const bool resident : {true, false}) {
    if ((plan.bulk || c.bands > 1 || plan.squares == 2) && !resident) continue;
    const int64_t weights = resident ? c.weight_bytes : kSlots * needs.block;
    // Slots of half a slab may be more.
    const bool halves = box_channels(plan.squares, plan.element) < kChunk;
    const int most_raw = !plan.bulk ? kMaxRawSlots : halves ? kMaxBulkSlots : kMaxBulkSlots - 2;
    for (int raw_slots = most_raw; raw_slots >= 2; --raw_slots) {
      const int64_t stages = std::min<int64_t>(
          kMaxStages, (available - weights - raw_slots * needs.raw_slot) / c.slab_bytes);
      // Through the ring all warpgroups take their tiles' slabs at the same time.
      if (stages < (resident ? needs.window : kConsumers)) continue;
      c.resident = resident;
      c.raw_slots = raw_slots;
      c.raw_slot_bytes = static_cast<int32_t>(needs.raw_slot);
      c.raw_at = static_cast<int32_t>(weights);
      c.stages = static_cast<int32_t>(stages);
      c.stages_at = c.raw_at + c.raw_slots * c.raw_slot_bytes;
      c.stage_reciprocal = 0xFFFFFFFFu / static_cast<uint32_t>(c.stages) + 1;
      return true;
    }
  }
  return false;
}

// Settles how a class uses shared memory. False where even the smallest way does not fit.
bool fit(Class& c, const Plan& plan, int64_t available) {
  const int64_t block = int64_t{2} * parts_of(plan.engine) * kChunk * plan.channels;
  const int64_t piece = std::min<int64_t>(c.positions * kEights, kPieceTasks) * kTaskBytes;
  const int64_t box =
      int64_t{box_channels(plan.squares, plan.element)} * plan.box_y * plan.box_x * plan.element;
  const int64_t raw_slot = std::max(piece, plan.bulk ? box : 0);
  c.quads_of_row = ((c.x_min & (16 / plan.element - 1)) + c.slab_x + 3) / 4;
  c.quads = c.quads_of_row * c.slab_y * (box_channels(plan.squares, plan.element) / 8);
  c.weight_bytes = block * c.weight_blocks;
  // A slab more than the window, so that one is filled while the others are multiplied; with
  // several bands warpgroups are in two windows at a time, where they are three.
  const int64_t window =
      int64_t{c.window} * plan.chunks + (c.bands > 1 && plan.squares == 1 ? 2 : 1);
  if (plan.out_boxes) {
    const int64_t boxes =
        int64_t{4} * kConsumersOf<kMaxSquares> * out_box_bytes(plan.channels, plan.element);
    available = round_down(available - boxes, kBoxAlignment);
    c.out_at = static_cast<int32_t>(available);
  }
  // Slots for add come last, where the swizzle of bulk copies wants them. What is asked for early
  // counts more than slots of raw x.
  const int most_add = plan.add_slots ? kMaxAddSlots : 0;
  for (int add_slots = most_add; add_slots >= std::min(2, most_add); --add_slots) {
    const int64_t rest = add_slots == 0
                             ? available
                             : round_down(available - add_slots * kAddSlotBytes, kAddAlignment);
    c.add_slots = add_slots;
    c.add_at = static_cast<int32_t>(rest);
    if (use(c, plan, {raw_slot, window, block}, rest)) return true;
  }
  return false;
}

// Boxes of bulk copies, which start at whole 16 bytes and move whole ones: the same for all
// classes, and so for all of their phases along y.
void size_boxes(Plan& plan) {
  plan.box_x = plan.box_y = 0;
  const int whole = 16 / plan.element;
  for (const Class& c : plan.classes) {
    const int start = c.x_min & (whole - 1);
    plan.box_x = std::max(plan.box_x, (start + c.slab_x + whole - 1) / whole * whole);
    plan.box_y = std::max(plan.box_y, c.slab_y);
  }
}

// The classes of a plan and how each uses shared memory. False where not all of them fit.
bool lay_out(Plan& plan, const ConvTranspose3d& g, int64_t available) {
  const auto z = phase_taps(g, 0), y = phase_taps(g, 1), x = phase_taps(g, 2);
  const auto columns = columns_of(plan, x);
  const auto add = [&](const PhaseTaps& pz, std::span<const PhaseTaps> py, const Columns& px) {
    plan.classes.push_back(make_class({pz, py, px}, plan, plan.joins_steps(), &plan.bands));
  };
  const auto clear = [&] {
    plan.classes.clear();
    plan.bands.clear();
    plan.tile_weight_bytes = 0;
  };
  const auto settle = [&](const ClassPhases& phases) {
    Class& c = plan.classes.back();
    if (!fit(c, plan, available)) return false;
    // The ring brings weights block by block.
    if (!c.resident) {
      plan.bands.resize(static_cast<size_t>(c.first_band));
      make_class(phases, plan, false, &plan.bands);
    }
    c.weight_offset = plan.tile_weight_bytes;
    plan.tile_weight_bytes += c.weight_bytes;
    return true;
  };
  for (const bool bulk : {true, false}) {
    if (!bulk && plan.squares == 2) continue;
    plan.bulk = bulk;
    clear();
    for (const PhaseTaps& pz : z) {
      for (const Columns& px : columns) add(pz, y, px);
    }
    size_boxes(plan);
    // Each class with all phases along y where that fits, and else one for each of them.
    clear();
    bool fits = true;
    for (const PhaseTaps& pz : z) {
      for (const Columns& px : columns) {
        add(pz, y, px);
        if (settle({pz, y, px})) continue;
        plan.bands.resize(static_cast<size_t>(plan.classes.back().first_band));
        plan.classes.pop_back();
        for (size_t i = 0; i < y.size(); ++i) {
          const std::span<const PhaseTaps> one = std::span(y).subspan(i, 1);
          add(pz, one, px);
          fits = settle({pz, one, px}) && fits;
        }
      }
    }
    if (fits) return true;
  }
  return false;
}

}  // namespace

int pieces_of(const Problem& problem) {
  // Of the sample alone, as all that decides which engine takes it.
  constexpr int64_t kLength = 8192;
  const Shape5& x = problem.input;
  return static_cast<int>(std::clamp<int64_t>(x[1] * x[2] * x[3] * x[4] / kLength, 1, kMaxPieces));
}

int64_t tiles_of(const Plan& plan, const Problem& problem, const DeviceProperties& device) {
  int blocks = 0;
  const Parameters p = make_parameters(plan, problem, device, &blocks);
  int64_t tiles = 0;
  for (const Class& c : std::span(p.classes).first(static_cast<size_t>(p.class_count))) {
    tiles += int64_t{c.tiles} * c.bands * plan.channel_tiles;
  }
  return tiles;
}

Plan make_plan(const Problem& problem, Engine engine, int squares, const DeviceProperties& device) {
  const ConvTranspose3d& g = problem.geometry;
  Plan plan;
  plan.squares = squares;
  plan.engine = engine;
  plan.weight_exponent = problem.weights.greatest_exponent;
  plan.add_slots = squares == 2 && takes_add(problem.epilogue.kind);
  plan.chunks = static_cast<int>((g.in_channels + kChunk - 1) / kChunk);
  plan.channel_tiles = static_cast<int>((g.out_channels + plan.channels - 1) / plan.channels);
  const auto available =
      static_cast<int64_t>(device.shared_memory_bytes) - static_cast<int64_t>(kSharedHeader);
  plan.element = static_cast<int>(element_size(problem.io));
  bool fits = lay_out(plan, g, available);
  // Boxes for outputs, where rows are what bulk copies take and shared memory has room beside the
  // same classes: a class more reads x once more.
  if (fits && boxes_outputs(problem.epilogue.kind, squares, plan.element) &&
      problem.conv_output[4] * plan.element % 16 == 0) {
    Plan boxed = plan;
    boxed.out_boxes = true;
    if (lay_out(boxed, g, available) && boxed.classes.size() == plan.classes.size()) {
      plan = std::move(boxed);
    }
  }
  if (!fits && g.stride[2] == 1) {
    plan.narrow = true;
    fits = lay_out(plan, g, available);
  }
  plan.shared_bytes = fits ? device.shared_memory_bytes : 0;
  return plan;
}

namespace {

// Time of a tile of each band of a class in clocks: products against what each tile costs beside
// them, measured loosely; decides the deal of blocks alone.
double tile_cost(const Plan& plan, const Class& c, bool adds) {
  const int parts = parts_of(plan.engine);
  const int products = parts * (parts + 1) / 2;
  const double multiply = products * (kChunk / 16.0) * c.weight_blocks * plan.channels / 2;
  const double finish = plan.out_boxes ? 750 : !adds ? 1500 : parts > 1 ? 3500 : 3000;
  return multiply + finish * c.bands;
}

// Blocks for each class of a channel tile, and for each tile alike: one after the other to the
// class that is worst off, at least one each and at most one a tile.
std::vector<int64_t> deal_blocks(const Plan& plan, const Parameters& p, int64_t blocks) {
  std::vector<int64_t> dealt(plan.classes.size());
  std::vector<double> cost;
  for (size_t i = 0; i < plan.classes.size(); ++i) {
    dealt[i] = p.classes[i].tiles > 0;
    cost.push_back(tile_cost(plan, plan.classes[i], takes_add(p.epilogue.kind)));
  }
  // Tiles that are one block's at a time.
  const auto grain = [&](size_t i) -> int64_t { return plan.classes[i].resident ? 1 : kConsumers; };
  const auto units = [&](size_t i) { return (p.classes[i].tiles + grain(i) - 1) / grain(i); };
  const auto time = [&](size_t i) {
    const int64_t rounds = (units(i) + dealt[i] - 1) / dealt[i];
    return cost[i] * static_cast<double>(rounds * grain(i));
  };
  int64_t spare = blocks / plan.channel_tiles;
  for (const int64_t taken : dealt) spare -= taken;
  for (; spare > 0; --spare) {
    size_t worst = dealt.size();
    for (size_t i = 0; i < dealt.size(); ++i) {
      if (dealt[i] < units(i) && (worst == dealt.size() || time(i) > time(worst))) worst = i;
    }
    if (worst == dealt.size()) break;
    ++dealt[worst];
  }
  return dealt;
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
  p.tile_x = (g.stride[2] == 1 && !plan.narrow ? 2 : plan.squares) * kSquareEdge;
  p.chunks = plan.chunks;
  p.out_boxes = plan.out_boxes;
  p.bulk = plan.bulk && problem.input[4] * plan.element % 16 == 0;
  p.box_x = plan.box_x;
  p.box_y = plan.box_y;
  p.box_c = box_channels(plan.squares, plan.element);
  p.paired = g.stride[2] == 2 && p.ow % 2 == 0;
  p.even_count = p.n % 2 == 0 || p.ci % 2 == 0 || p.id % 2 == 0 || p.ih % 2 == 0 || p.iw % 2 == 0;
  p.pieces = pieces_of(problem);
  p.weight_unscale = std::ldexp(1.0f, plan.weight_exponent - kGreatestExponent);
  p.class_count = static_cast<int32_t>(plan.classes.size());
  p.share_count = p.class_count * plan.channel_tiles;
  p.tile_weight_bytes = plan.tile_weight_bytes;
  p.input_plane = problem.input[2] * problem.input[3] * problem.input[4];
  p.output_plane = problem.conv_output[2] * problem.conv_output[3] * problem.conv_output[4];

  std::copy(plan.bands.begin(), plan.bands.end(), p.bands);
  for (int32_t i = 0; i < p.class_count; ++i) {
    Class& c = p.classes[i];
    c = plan.classes[static_cast<size_t>(i)];
    int64_t x = phase_count(p.ow, p.stride_x, c.phase_x[0]);
    if (c.accumulators == 2) x = std::max(x, phase_count(p.ow, p.stride_x, c.phase_x[1]));
    int64_t y = 0;
    for (const Band& band : std::span(p.bands).subspan(static_cast<size_t>(c.first_band),
                                                       static_cast<size_t>(c.bands))) {
      y = std::max(y, phase_count(p.oh, p.stride_y, band.phase_y));
    }
    c.tiles_x = narrow((x + p.tile_x - 1) / p.tile_x);
    c.tiles_y = narrow((y + kSquareEdge - 1) / kSquareEdge);
    c.positions_z = narrow(phase_count(p.od, p.stride_z, c.phase_z));
    c.columns = static_cast<uint32_t>(c.tiles_x * c.tiles_y * p.n);
    c.tiles = c.columns * static_cast<uint32_t>(c.positions_z);
  }
  const std::vector<int64_t> dealt = deal_blocks(plan, p, device.multiprocessors);
  for (int32_t i = 0; i < p.share_count; ++i) {
    p.first_block[i + 1] = p.first_block[i] + narrow(dealt[static_cast<size_t>(i % p.class_count)]);
  }
  *blocks = p.first_block[p.share_count];
  return p;
}

}  // namespace volup::sm90
