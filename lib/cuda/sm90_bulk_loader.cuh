// SPDX-License-Identifier: Apache-2.0
//
// The roles of a block of "cuda/sm90" that bring x to stages by bulk copies, where weights stay, a
// slab is one piece and x has rows of whole 16 bytes: one thread starts a copy a slab, and kLoaders
// threads split what arrives. Raw x is [slot][channel][box_y][box_x].
#ifndef VOLUP_CUDA_SM90_BULK_LOADER_CUH_
#define VOLUP_CUDA_SM90_BULK_LOADER_CUH_

#include <type_traits>

#include "cuda/ptx.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"
#include "cuda/sm90_loader.cuh"

namespace volup::sm90 {

template <Engine kEngine, typename Io>
struct BulkLoader : Loader<kEngine, Io> {
  using Base = Loader<kEngine, Io>;
  using Base::Base;
  using Base::begin_fill;
  using Base::c;
  using Base::p;
  using Base::shared;
  using Base::stage_at;
  using Base::tasks;
  using Base::work;

  // The copy engine wants boxes that start at whole 16 bytes: a slab starts kWhole - 1 elements
  // later at most.
  static constexpr int kWhole = 16 / static_cast<int>(sizeof(Io));

  // The role of the one thread.
  __device__ void copy_raw() const {
    const uint32_t bytes = kChunk * p.box_y * p.box_x * sizeof(Io);
    unsigned char* raw = shared.dynamic + work.raw_at;
    ptx::grid_dependency_wait();
    int slot = 0;
    uint32_t parity = 1, number = 0;
    const auto next_slot = [&] {
      ++number;
      if (++slot == c.raw_slots) {
        slot = 0;
        parity ^= 1;
      }
    };
    for (typename Base::Marching slabs(*this); slabs.more(); slabs.next(), next_slot()) {
      const typename Base::Slab slab = slabs.slab();
      wait(&shared.raw_empty[slot], parity);
      ptx::mbarrier_arrive_expect(&shared.raw_full[slot], bytes);
      ptx::tensor_copy(raw + slot * c.raw_slot_bytes, &p.x_map, slab.tile.x + (c.x_min & -kWhole),
                       slab.tile.y + c.y_min, slab.tile.z, slab.chunk * kChunk, slab.tile.n,
                       &shared.raw_full[slot]);
    }
    wait(&shared.raw_empty[slot], parity);
    shared.raw_end = number;
    ptx::mbarrier_arrive(&shared.raw_full[slot]);
  }

  // The role of kLoaders threads.
  __device__ void split_raw(int thread) const {
    const uint32_t slab_bytes = work.slab_bytes;
    const uint32_t channel_bytes = p.box_y * p.box_x * sizeof(Io);
    const uint32_t raw = ptx::shared_address(shared.dynamic) + work.raw_at;
    // Of each task: bytes into the slot, and into the stage as in Task.
    uint32_t from[sm90::kBatch];
    int to[sm90::kBatch];
#pragma unroll
    for (int b = 0; b < sm90::kBatch; ++b) {
      const int index = min(b * kLoaders + thread, tasks() - 1);
      const int position = index % work.positions;
      const int eight = index / work.positions;
      from[b] = raw + eight * 8 * channel_bytes +
                (position / c.slab_x * p.box_x + (c.x_min & (kWhole - 1)) + position % c.slab_x) *
                    sizeof(Io);
      to[b] = b * kLoaders + thread < tasks() ? position * kRowBytes + eight : -1;
    }
    int slot = 0;
    uint32_t parity = 0, slot_at = 0;
    Block::Fill fill = {0, 0};
    for (uint32_t number = 0;; ++number) {
      wait(&shared.raw_full[slot], parity);
      if (number == shared.raw_end) break;
      const uint32_t stage = stage_at(fill.stage);
      begin_fill(thread, number, fill);
#pragma unroll
      for (int b = 0; b < sm90::kBatch; b += 2) {
        split_two(&from[b], &to[b], slot_at, channel_bytes, stage, slab_bytes / Base::kParts);
      }
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(&shared.full[fill.stage]);
      __syncwarp();
      if (thread % 32 == 0) ptx::mbarrier_arrive(&shared.raw_empty[slot]);
      if (++fill.stage == static_cast<uint32_t>(c.stages)) fill = {0, fill.parity ^ 1};
      slot_at += c.raw_slot_bytes;
      if (++slot == c.raw_slots) {
        slot = 0;
        slot_at = 0;
        parity ^= 1;
      }
    }
  }

  // Two tasks, both read before any is split: shared memory is slow to answer while the tensor
  // cores read it.
  __device__ static void split_two(const uint32_t* from, const int* to, uint32_t slot,
                                   uint32_t channel_bytes, uint32_t stage, uint32_t part_bytes) {
    uint32_t bits[2][8];
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      uint32_t at = from[b] + slot;
#pragma unroll
      for (int k = 0; k < 8; ++k, at += channel_bytes) {
        bits[b][k] = sizeof(Io) == 4 ? ptx::load_shared(at) : ptx::load_shared_16(at);
      }
    }
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const uint32_t row = stage + (to[b] & ~3);
      if constexpr (std::is_same_v<Io, OperandOf<kEngine>>) {
        const auto pair = [&](int k) { return bits[b][k] | bits[b][k + 1] << 16; };
        if (to[b] >= 0) {
          ptx::store_shared(row + swizzled(row, to[b] & 3),
                            make_uint4(pair(0), pair(2), pair(4), pair(6)));
        }
      } else {
        float value[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) value[k] = __uint_as_float(bits[b][k]);
        if (to[b] >= 0) Base::scatter(row, to[b] & 3, part_bytes, value);
      }
    }
  }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_BULK_LOADER_CUH_
