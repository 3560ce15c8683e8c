// SPDX-License-Identifier: Apache-2.0
//
// What cpu/fused works out once a problem: phases as tables, tile and band sizes, blocks of output
// channels, and where everything lies in a worker's scratch memory. No vector code.
//
// Work is cut into tasks: one base plane of one sample, a band of base rows, a tile of base
// columns. A task copies the input rows that it reads into scratch, zero-padded along W, and then
// computes every phase of its base positions over all channels.
#ifndef VOLUP_CPU_FUSED_PLAN_H_
#define VOLUP_CPU_FUSED_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernel.h"

namespace volup {

// The taps of one axis in order of phase. Base position q and phase r make output q * stride + r.
struct FusedAxis {
  int64_t stride = 1;
  int64_t in = 0;
  int64_t out = 0;
  int64_t base = 0;  // base positions: ceil(out / stride)
  int64_t first_delta = 0;
  std::vector<int32_t> phase_begin;  // [stride + 1] into the vectors below
  std::vector<int64_t> k;            // index into the kernel axis
  std::vector<int64_t> delta;        // reads input q + delta
  std::vector<int32_t> slot;         // where the copy of that input is, relative to q's
  std::vector<int64_t> slot_delta;   // the delta of each slot

  int32_t begin(int64_t r) const { return phase_begin[static_cast<size_t>(r)]; }
  int32_t end(int64_t r) const { return phase_begin[static_cast<size_t>(r) + 1]; }
  int32_t taps() const { return phase_begin.back(); }
};

// Neighbouring output channels that are summed in registers together.
struct FusedBlock {
  int64_t channel;  // the first
  int32_t count;
  int64_t input_channel;  // the first of its group
  int64_t weight;         // floats from the start of the packed weights
};

struct FusedPlan {
  Problem problem;
  CpuIsa isa = CpuIsa::kPortable;
  int lanes = 4;

  FusedAxis z, y, x;
  int vectors = 1;         // vectors along W that a block sums at once
  int block_channels = 1;  // channels of the largest block
  // Both phases along W are summed together: phase 0 has one tap, phase 1 that same input's and its
  // right neighbour's, as with kernel 3, stride 2, padding 1.
  bool pairs = false;
  bool base_2 = false;  // the weights are there times log2(e) too
  std::vector<FusedBlock> blocks;
  // Floats from a base row's copy to the input of a step. A step is one tap of one channel in, in
  // the order (rz, ry, rx, tz, ty, tx, ci); with pairs it is the three taps along W of one channel
  // in, in the order (rz, ry, tz, ty, ci). That is also the order of a block's weights.
  std::vector<int32_t> step_offset;

  int64_t band = 1;     // base rows of a task
  int64_t group = 1;    // of which so many are finished together
  int64_t tile = 0;     // base columns of a task, a multiple of lanes
  int64_t bands = 1;    // tasks along H
  int64_t tiles = 1;    // tasks along W
  int64_t pitch = 0;    // floats of a copied row
  bool stream = false;  // stores bypass the caches

  // A worker's scratch, in floats from its start.
  int64_t copy_floats = 0;    // [row slots, plane slots, Cin, pitch], at 0
  int64_t sums_at = 0;        // [channels at once, output rows of a group, rx, tile]
  int64_t per_column_at = 0;  // [2, rows, rx, tile]; rows: a band's for logsumexp, else one
  int64_t row_at = 0;         // [2, tile * stride]
  int64_t runs_at = 0;        // of Run, [taps along D]
  int64_t worker_floats = 0;

  int64_t tasks() const { return problem.input[0] * z.base * bands * tiles; }
  int64_t row_floats() const {
    return static_cast<int64_t>(z.slot_delta.size()) * problem.geometry.in_channels * pitch;
  }
  // The first step of the phases (rz, ry, any rx).
  int64_t first_step(int64_t rz, int64_t ry) const;
  // Floats of one bias and one set of weights.
  int64_t packed_floats() const {
    return problem.geometry.out_channels + problem.geometry.weight_count();
  }
};

// Consecutive steps of a phase whose input rows exist.
struct FusedRun {
  int32_t begin;
  int32_t count;
};

// Words where the kernel cannot take the problem at all.
Refusal refuse_fused(const Problem& problem);

// A plan whose workers' scratch is at most limit bytes together. Problem is one that is not
// refused.
Result<FusedPlan> plan_fused(const Problem& problem, const DeviceProperties& device, size_t limit);

// bias [Cout], then the weights of every block: [steps, count], with pairs [steps, 3, count] in the
// order phase 0, phase 1 on the same input, phase 1 on its neighbour. With base_2 the same follows
// times log2(e), for sums that are exponents of 2, and then two floats that bound them: the largest
// |bias|, and the largest sum of |weight| over the steps of one phase and channel.
std::vector<float> pack_fused(const FusedPlan& plan, const float* weight, const float* bias);

}  // namespace volup

#endif  // VOLUP_CPU_FUSED_PLAN_H_
