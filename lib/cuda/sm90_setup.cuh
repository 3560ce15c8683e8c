// SPDX-License-Identifier: Apache-2.0
//
// How a block of "cuda/sm90" gets ready: which class it serves, what of it, and everything in
// shared memory that roles expect before they start.
#ifndef VOLUP_CUDA_SM90_SETUP_CUH_
#define VOLUP_CUDA_SM90_SETUP_CUH_

#include "cuda/ptx.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"

namespace volup::sm90 {

// Index of the class that this block serves: a bisection of first_block.
__device__ inline int find_class(const Parameters& p) {
  int serves = 0;
  for (int low = 0, high = p.class_count; high - low > 1;) {
    const int middle = (low + high) / 2;
    (static_cast<int>(blockIdx.x) < p.first_block[middle] ? high : low) = middle;
    serves = low;
  }
  return serves;
}

// Positions of a phase along an axis.
__device__ inline int positions(int out, int stride, int phase) {
  return out > phase ? (out - phase + stride - 1) / stride : 0;
}

__device__ inline Work make_work(const Parameters& p, const Class& c, int parts, int channels,
                                 int rank, int ranks) {
  Work work;
  int x = positions(p.ow, p.stride_x, c.phase_x[0]);
  if (c.accumulators == 2) x = max(x, positions(p.ow, p.stride_x, c.phase_x[1]));
  work.tiles_x = (x + p.tile_x - 1) / p.tile_x;
  work.tiles_y = (positions(p.oh, p.stride_y, c.phase_y) + kTileEdge - 1) / kTileEdge;
  work.positions_z = positions(p.od, p.stride_z, c.phase_z);
  work.segment = c.resident ? p.segment : 1;
  work.segments = (work.positions_z + work.segment - 1) / work.segment;
  work.units = work.tiles_x * work.tiles_y * work.segments * p.n;
  work.rank = rank;
  work.ranks = ranks;
  work.slabs = p.chunks * c.planes;
  work.block_bytes = parts * kChunk * channels * 2;
  work.positions = c.slab_y * c.slab_x;
  work.slab_bytes = parts * kChunk * 2 * work.positions;
  work.raw_at = c.resident ? static_cast<int>(c.weight_bytes) : kSlots * work.block_bytes;
  work.stages_at = work.raw_at + c.raw_slots * c.raw_slot_bytes;
  work.stage_reciprocal = 0xFFFFFFFFu / c.stages + 1;
  return work;
}

__device__ inline void init_barriers(Shared& shared, const Class& c) {
  // Counts of arrivals: the thread that starts bulk copies of x on raw_full, a lane of each warp
  // that splits it on raw_empty, every thread that loads x on full, the one that loads weights on
  // slot_full, a lane of each warp that multiplies on slot_empty, and on empty a lane of each warp
  // that multiplies a tile whose window has the slab.
  for (int i = 0; i < kMaxRawSlots; ++i) {
    ptx::mbarrier_init(&shared.raw_full[i], 1);
    ptx::mbarrier_init(&shared.raw_empty[i], kLoaders / 32);
  }
  for (int i = 0; i < kMaxStages; ++i) {
    ptx::mbarrier_init(&shared.full[i], kLoaders);
    ptx::mbarrier_init(&shared.empty[i], 4 * (c.resident ? c.window : 1));
  }
  for (int i = 0; i < kSlots; ++i) {
    ptx::mbarrier_init(&shared.slot_full[i], 1);
    ptx::mbarrier_init(&shared.slot_empty[i], 4 * kConsumers);
  }
  ptx::fence_mbarrier_init();
}

// Copies the class and its bias, works out the block's part of it, and makes barriers ready. Other
// threads see it after a barrier.
template <Engine kEngine, int kN>
__device__ void take_class(const Parameters& p, Shared& shared) {
  const int thread = threadIdx.x;
  const int serves = find_class(p);
  const Class& from = p.classes[serves];
  if (thread < static_cast<int>(sizeof(Class) / 4)) {
    reinterpret_cast<uint32_t*>(&shared.now)[thread] =
        reinterpret_cast<const uint32_t*>(&from)[thread];
  }
  if (thread < kN) shared.bias[thread] = p.bias[from.first_channel + thread];
  if (thread == 0) {
    shared.work = make_work(p, from, kPartsOf<kEngine>, kN,
                            static_cast<int>(blockIdx.x) - p.first_block[serves],
                            p.first_block[serves + 1] - p.first_block[serves]);
    shared.begun = 0;
    shared.raw_end = ~0u;
    init_barriers(shared, from);
  }
}

// Where the steps of a tile find their operands, accumulator by accumulator, where weights stay:
// the slab's fill from the window's first on in the upper 16 bits of x and the offset in it below,
// and the offset in the weights in y, both in 16 bytes.
__device__ inline void list_steps(const Parameters& p, Shared& shared) {
  const Class& c = shared.now;
  const Work& work = shared.work;
  const int per_slab = c.steps[0] + c.steps[1];
  for (int block = threadIdx.x; block < work.slabs * per_slab; block += blockDim.x) {
    const int slab = block / per_slab;
    const int step = block % per_slab;
    const int j = step >= c.steps[0];
    const int own = step - (j == 0 ? 0 : c.steps[0]);
    const int at = (j == 0 ? 0 : work.slabs * c.steps[0]) + slab * c.steps[j] + own;
    const int fill = (c.delta_z[slab % c.planes] - c.z_min) * p.chunks + slab / c.planes;
    shared.steps[at] = make_uint2(fill << 16 | c.step_offset[j][own] * (kRowBytes / 16),
                                  block * (work.block_bytes / 16));
  }
}

// The distance to a block's next unit as digits, so that roles go on without divisions.
__device__ inline void list_distance(Shared& shared) {
  if (threadIdx.x == 0) {
    const Digits digits(shared.work, shared.work.ranks);
    shared.to_next_unit = make_int4(digits.x, digits.y, digits.segment, digits.n);
  }
}

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_SETUP_CUH_
