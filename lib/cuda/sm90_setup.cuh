// SPDX-License-Identifier: Apache-2.0
//
// How a block of "cuda/sm90" gets ready: which share it serves, and everything in shared memory
// that roles expect before they start.
#ifndef VOLUP_CUDA_SM90_SETUP_CUH_
#define VOLUP_CUDA_SM90_SETUP_CUH_

#include "cuda/ptx.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"

namespace volup::sm90 {

// The share that this block serves: a bisection of first_block. Each role finds it for itself, for
// nothing should stay in registers from before roles part.
__device__ inline Share find_share(const Parameters& p) {
  const int block = static_cast<int>(ptx::block_index());
  int serves = 0;
  for (int low = 0, high = p.share_count; high - low > 1;) {
    const int middle = (low + high) / 2;
    (block < p.first_block[middle] ? high : low) = middle;
    serves = low;
  }
  return {serves % p.class_count, serves / p.class_count,
          static_cast<uint32_t>(block - p.first_block[serves]),
          static_cast<uint32_t>(p.first_block[serves + 1] - p.first_block[serves])};
}

// A barrier a thread: one after the other they take as long as a small tile's products.
__device__ inline void init_barriers(Shared& shared, const Parameters& p, const Class& c,
                                     int splitters, int squares, int thread) {
  int next = thread;
  const auto init = [&](auto& barriers, int arrivals) {
    constexpr int kCount = static_cast<int>(sizeof(barriers) / sizeof(uint64_t));
    auto* all = reinterpret_cast<uint64_t*>(&barriers);
    if (next >= 0 && next < kCount) ptx::mbarrier_init(all + next, arrivals);
    next -= kCount;
  };
  // Counts of arrivals: the thread that starts bulk copies on raw_full and add_full, a lane of each
  // warp that splits raw x on raw_empty, every thread that loads x on full, the one that loads
  // weights on slot_full, a lane of each warp that multiplies on slot_empty, one of each that
  // finishes a tile on add_empty, and on empty one of each that multiplies a tile whose window has
  // the slab.
  init(shared.raw_full, 1);
  init(shared.raw_empty, splitters / 32);
  init(shared.full, c.resident && p.bulk ? splitters : kLoaders);
  init(shared.empty, 4 * squares * c.bands * (c.resident ? c.window : 1));
  init(shared.slot_full, 1);
  init(shared.slot_empty, 4 * kConsumers);
  init(shared.add_full, 1);
  init(shared.add_empty, 4 * squares);
  ptx::fence_mbarrier_init();
}

// Bias is multiplied by bias_scale. Other threads see all of it after a barrier.
template <int kN, int kSquares>
__device__ void prepare(const Parameters& p, Shared& shared, const Share& share, float bias_scale) {
  const int thread = threadIdx.x;
  const float bias = thread < kN ? p.bias[share.channel_tile * kN + thread] : 0;
  if (thread == 0) shared.begun = 0;
  init_barriers(shared, p, p.classes[share.class_index], kSplittersOf<kSquares>, kSquares, thread);
  if (thread < kN) shared.bias[thread] = bias * bias_scale;
}

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_SETUP_CUH_
