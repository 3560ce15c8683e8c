// SPDX-License-Identifier: Apache-2.0
//
// The role of a block of "cuda/sm90" that brings x to stages by bulk copies, where weights stay and
// x has rows of whole 16 bytes: a warpgroup, one thread of which starts a copy a slab some slabs
// ahead, splits what arrived. Raw x is [slot][channel][box_y][box_x].
#ifndef VOLUP_CUDA_SM90_BULK_LOADER_CUH_
#define VOLUP_CUDA_SM90_BULK_LOADER_CUH_

#include <type_traits>

#include "cuda/ptx.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"
#include "cuda/sm90_loader.cuh"

namespace volup::sm90 {

template <Engine kEngine, typename Io, int kN>
struct BulkLoader : Loader<kEngine, Io, kN> {
  using Base = Loader<kEngine, Io, kN>;
  using Base::Base;
  using Base::begin_fill;
  using Base::c;
  using Base::p;
  using Base::shared;
  using Base::stage_at;

  // The copy engine wants boxes that start at whole 16 bytes: a slab starts kWhole - 1 elements
  // later at most.
  static constexpr int kWhole = 16 / static_cast<int>(sizeof(Io));

  // Slabs that a block fills.
  __device__ uint32_t fills() const {
    const typename Base::Stretch rest = this->remainder();
    const uint32_t whole = this->whole_columns();
    const uint32_t tiles = whole * c.positions_z + rest.count;
    const uint32_t runs =
        whole + (rest.count == 0 ? 0
                                 : (rest.first % c.positions_z + rest.count + c.positions_z - 1) /
                                       c.positions_z);
    return (tiles + runs * (c.window - 1)) * p.chunks;
  }

  // Starts the copies of slabs, one after the other.
  struct Copies {
    const BulkLoader& loader;
    typename Base::Marching slabs;
    int slot = 0;

    __device__ explicit Copies(const BulkLoader& l) : loader(l), slabs(l) {}
    __device__ void start_next(bool starts) {
      if (!slabs.more()) return;
      if (starts) start(slabs.slab());
      slabs.next();
      if (++slot == loader.c.raw_slots) slot = 0;
    }

   private:
    __device__ void start(const typename Base::Slab& slab) const {
      const Parameters& p = loader.p;
      uint64_t* barrier = &loader.shared.raw_full[slot];
      ptx::mbarrier_arrive_expect(barrier, kChunk * p.box_y * p.box_x * sizeof(Io));
      ptx::tensor_copy(loader.shared.dynamic + loader.c.raw_at + slot * loader.c.raw_slot_bytes,
                       &p.x_map, slab.tile.x + (loader.c.x_min & -kWhole),
                       slab.tile.y + loader.c.y_min, slab.tile.z, slab.chunk * kChunk, slab.tile.n,
                       barrier);
    }
  };

  // A task is four neighbours of a row of the box and eight channels.
  struct Quad {
    uint32_t from;        // bytes into the slot
    int position, eight;  // of the slab, of the first of the four; they may start before the row
    int first, end;       // of the four those in the slab
  };
  __device__ int quads_of_row() const { return ((c.x_min & (kWhole - 1)) + c.slab_x + 3) / 4; }
  __device__ int quads() const { return quads_of_row() * c.slab_y * kEights; }
  __device__ Quad quad(int index) const {
    Quad q;
    const int row = index / quads_of_row();
    const int x = index % quads_of_row() * 4;
    const int y = row % c.slab_y;
    q.eight = row / c.slab_y;
    q.from = ((q.eight * 8 * p.box_y + y) * p.box_x + x) * sizeof(Io);
    const int slab_x = x - (c.x_min & (kWhole - 1));
    q.position = y * c.slab_x + slab_x;
    q.first = max(0, -slab_x);
    q.end = min(4, c.slab_x - slab_x);
    return q;
  }

  // The role of kBulkLoaders threads.
  __device__ void bring_x(int thread) const {
    const uint32_t raw = ptx::shared_address(shared.dynamic) + c.raw_at;
    const uint32_t count = fills();
    const int tasks = quads();
    const bool settled = tasks <= kBulkLoaders;
    Quad q = quad(min(thread, tasks - 1));
    if (thread == 0) ptx::grid_dependency_wait();
    Copies copies(*this);
    for (int i = 0; i < c.raw_slots; ++i) copies.start_next(thread == 0);
    int slot = 0;
    uint32_t parity = 0;
    Block::Fill fill = {0, 0};
    for (uint32_t number = 0; number != count; ++number) {
      wait(&shared.raw_full[slot], parity);
      begin_fill(thread, number, fill);
      for (int i = thread; i < tasks; i += kBulkLoaders) {
        if (!settled) q = quad(i);
        split_quad(q, raw + slot * c.raw_slot_bytes, stage_at(fill.stage));
      }
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(&shared.full[fill.stage]);
      __syncwarp();
      if (thread % 32 == 0) ptx::mbarrier_arrive(&shared.raw_empty[slot]);
      if (thread < 32) {
        wait(&shared.raw_empty[slot], parity);
        copies.start_next(thread == 0);
      }
      if (++fill.stage == static_cast<uint32_t>(c.stages)) fill = {0, fill.parity ^ 1};
      if (++slot == c.raw_slots) {
        slot = 0;
        parity ^= 1;
      }
    }
  }

  // Everything is read before any of it is split: shared memory is slow to answer while the tensor
  // cores read it.
  __device__ void split_quad(const Quad& q, uint32_t slot, uint32_t stage) const {
    const uint32_t channel_bytes = p.box_y * p.box_x * sizeof(Io);
    uint32_t row = stage + q.position * kRowBytes;
    if constexpr (sizeof(Io) == 4) {
      uint4 bits[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) bits[k] = ptx::load_shared_128(slot + q.from + k * channel_bytes);
#pragma unroll
      for (int i = 0; i < 4; ++i, row += kRowBytes) {
        float value[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const uint4& b = bits[k];
          value[k] = __uint_as_float(i == 0 ? b.x : i == 1 ? b.y : i == 2 ? b.z : b.w);
        }
        if (i >= q.first && i < q.end) {
          Base::scatter(row, q.eight, c.slab_bytes / Base::kParts, value);
        }
      }
    } else {
      static_assert(std::is_same_v<Io, OperandOf<kEngine>>);
      uint2 bits[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) bits[k] = ptx::load_shared_64(slot + q.from + k * channel_bytes);
#pragma unroll
      for (int i = 0; i < 4; ++i, row += kRowBytes) {
        const auto pair = [&](int k) {
          return i < 2 ? __byte_perm(bits[k].x, bits[k + 1].x, i == 0 ? 0x5410 : 0x7632)
                       : __byte_perm(bits[k].y, bits[k + 1].y, i == 2 ? 0x5410 : 0x7632);
        };
        if (i >= q.first && i < q.end) {
          ptx::store_shared(row + swizzled(row, q.eight),
                            make_uint4(pair(0), pair(2), pair(4), pair(6)));
        }
      }
    }
  }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_BULK_LOADER_CUH_
