// SPDX-License-Identifier: Apache-2.0
//
// The roles of a block of "cuda/sm90" that fill shared memory: weights, packed on the host, by bulk
// copies; and x, gathered from its planes, split into parts and laid out for the products.
#ifndef VOLUP_CUDA_SM90_LOADER_CUH_
#define VOLUP_CUDA_SM90_LOADER_CUH_

#include "cuda/ptx.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"

namespace volup::sm90 {

// Parts of two values, packed; low is the even channel.
template <Engine kEngine>
__device__ inline void split(float low, float high, uint32_t (&part)[kPartsOf<kEngine>]) {
  if constexpr (kEngine == Engine::kFp16x1) {
    part[0] = ptx::pack_fp16(low, high);
  } else {
#pragma unroll
    for (int i = 0; i < kPartsOf<kEngine>; ++i) {
      part[i] = ptx::pack_bf16(low, high);
      low -= __uint_as_float(part[i] << 16);
      high -= __uint_as_float(part[i] & 0xFFFF0000u);
    }
  }
}

template <Engine kEngine, typename Io>
struct Loader : Block {
  using Block::Block;
  static constexpr int kParts = kPartsOf<kEngine>;

  // ---- Weights ---------------------------------------------------------------------------------

  // The role of one thread: all of them once, or block after block as slots of the ring come free,
  // again for every group and pass.
  __device__ void load_weights() const {
    const unsigned char* from = p.weights + c.weight_offset;
    if (c.resident) {
      ptx::mbarrier_arrive_expect(&shared.slot_full[0], static_cast<uint32_t>(c.weight_bytes));
      for (int64_t at = 0; at < c.weight_bytes; at += work.block_bytes) {
        ptx::bulk_copy(shared.dynamic + at, from + at, work.block_bytes, &shared.slot_full[0]);
      }
      return;
    }
    uint32_t number = 0;
    for (uint32_t group = work.rank; group < groups(); group += work.ranks) {
      for (int pass = 0; pass < kPassesOf<kEngine>; ++pass) {
        // The main product needs the leading parts alone.
        const uint32_t bytes =
            pass == kPassesOf<kEngine> - 1 ? work.block_bytes / kParts : work.block_bytes;
        for (int64_t at = 0; at < c.weight_bytes; at += work.block_bytes, ++number) {
          const uint32_t slot = number % kSlots;
          wait(&shared.slot_empty[slot], (number / kSlots & 1) ^ 1);
          ptx::mbarrier_arrive_expect(&shared.slot_full[slot], bytes);
          ptx::bulk_copy(shared.dynamic + slot * work.block_bytes, from + at, bytes,
                         &shared.slot_full[slot]);
        }
      }
    }
  }

  // ---- Input -----------------------------------------------------------------------------------

  // A task is one position and eight channels of a slab: eight loads, each coalesced over the
  // positions of a warp, and one 16-byte store a part. A thread has up to kBatch under way, whose
  // places it works out once where they cover the stage.
  static constexpr int kBatch = 3;
  struct Task {
    int shared_at = -1;  // bytes of its row into the stage + its 16 bytes of that; -1: no task
    uint32_t place = 0;  // bytes: x, y, z from the tile's first position plus 128, channels
    int64_t offset = 0;  // elements from the tile's first position
  };

  __device__ Task make_task(int task, int tasks, int fill) const {
    Task t;
    if (task >= tasks) return t;
    const int position = task % work.positions;
    const int eight = task / work.positions % kEights;
    const int staged = task / work.positions / kEights;
    const int slab = c.whole ? staged : fill % work.slabs;
    const int channel = slab / c.planes * kChunk + eight * 8;
    const int x = c.x_min + position % c.slab_x;
    const int y = c.y_min + position / c.slab_x;
    const int z = c.delta_z[slab % c.planes];
    t.shared_at = staged * work.slab_bytes + position * kRowBytes + eight;
    t.place = (x + 128) | (y + 128) << 8 | (z + 128) << 16 | max(0, min(8, p.ci - channel)) << 24;
    t.offset = ((static_cast<int64_t>(channel) * p.id + z) * p.ih + y) * p.iw + x;
    return t;
  }

  // The role of kLoaders threads: a stage for each warpgroup's tile in turn.
  __device__ void load_x(int thread) const {
    const int tasks = (c.whole ? work.slabs : 1) * kEights * work.positions;
    const bool settled = c.whole && tasks <= kLoaders * kBatch;
    Task task[kBatch];
    settle(task, thread, tasks, 0);
    Digits digits(work, work.rank * kConsumers);
    ptx::grid_dependency_wait();
    uint32_t number = 0;
    for (uint32_t group = work.rank; group < groups(); group += work.ranks) {
      for (int part = 0; part < work.fills * kConsumers; ++part, ++number) {
        const int w = part % kConsumers;
        const uint32_t index = group * kConsumers + w;
        const bool exists = index < work.tiles;
        if (exists || !c.resident) {
          if (work.fills > 1) digits = Digits(work, index);
          load_tile(thread, Tile(p, digits), exists, part / kConsumers, tasks, settled, number,
                    task);
        }
        digits.add(work, w + 1 < kConsumers ? shared.to_neighbour : shared.to_next_first);
      }
    }
  }

  // One fill of a stage. The loads of a batch start before the stage is free.
  __device__ void load_tile(int thread, const Tile& tile, bool exists, int fill, int tasks,
                            bool settled, uint32_t number, Task (&task)[kBatch]) const {
    const int64_t plane = input_plane();
    const Io* x = static_cast<const Io*>(p.x) + tile.n * p.ci * plane +
                  (static_cast<int64_t>(tile.z) * p.ih + tile.y) * p.iw + tile.x;
    const uint32_t stage = stage_of(number);
    for (int first = thread; first < tasks + thread; first += kLoaders * kBatch) {
      if (!settled) settle(task, first, tasks, fill);
      float value[kBatch][8];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) gather(x, tile, exists, task[b], plane, value[b]);
      if (first == thread) wait(&shared.empty[stage], parity_of(number) ^ 1);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (task[b].shared_at >= 0) {
          scatter(stage_at(stage) + (task[b].shared_at & ~3), task[b].shared_at & 3, value[b]);
        }
      }
    }
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(&shared.full[stage]);
  }

  // The tasks of a batch.
  __device__ void settle(Task (&task)[kBatch], int first, int tasks, int fill) const {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) task[b] = make_task(first + b * kLoaders, tasks, fill);
  }

  // Zero outside x and past its last channel.
  __device__ void gather(const Io* x, const Tile& tile, bool exists, const Task& task,
                         int64_t plane, float (&value)[8]) const {
    const int xx = tile.x - 128 + static_cast<int>(task.place & 255);
    const int y = tile.y - 128 + static_cast<int>(task.place >> 8 & 255);
    const int z = tile.z - 128 + static_cast<int>(task.place >> 16 & 255);
    const bool inside = exists && static_cast<uint32_t>(z) < static_cast<uint32_t>(p.id) &&
                        static_cast<uint32_t>(y) < static_cast<uint32_t>(p.ih) &&
                        static_cast<uint32_t>(xx) < static_cast<uint32_t>(p.iw);
    const int channels = inside ? task.place >> 24 : 0;
    const Io* at = x + task.offset;
#pragma unroll
    for (int k = 0; k < 8; ++k, at += plane) {
      value[k] = 0.0f;
      if (k < channels) value[k] = to_float(__ldg(at));
    }
  }

  __device__ void scatter(unsigned char* row, uint32_t eight, const float (&value)[8]) const {
    uint32_t part[4][kParts];
#pragma unroll
    for (int k = 0; k < 4; ++k) split<kEngine>(value[2 * k], value[2 * k + 1], part[k]);
#pragma unroll
    for (int i = 0; i < kParts; ++i, row += work.slab_bytes / kParts) {
      *reinterpret_cast<uint4*>(row + swizzled(ptx::shared_address(row), eight)) =
          make_uint4(part[0][i], part[1][i], part[2][i], part[3][i]);
    }
  }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_LOADER_CUH_
