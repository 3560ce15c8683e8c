// SPDX-License-Identifier: Apache-2.0
//
// The role of a block of "cuda/sm90" that brings x to stages by bulk copies, where weights stay and
// x has rows of whole 16 bytes: a warpgroup, one thread of which starts a copy a slab some slabs
// ahead, splits what arrived. Raw x is [slot][box_c][box_y][box_x]; the boxes of a slab follow each
// other.
#ifndef VOLUP_CUDA_SM90_BULK_LOADER_CUH_
#define VOLUP_CUDA_SM90_BULK_LOADER_CUH_

#include <type_traits>

#include "cuda/ptx.h"
#include "cuda/sm90_add_slots.cuh"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"
#include "cuda/sm90_loader.cuh"

namespace volup::sm90 {

template <Engine kEngine, EpilogueKind kKind, typename Io, int kN, int kSquares>
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
  static constexpr int kBoxChannels = box_channels(kSquares, sizeof(Io));
  static constexpr int kBoxes = kChunk / kBoxChannels;  // of a slab
  static constexpr bool kCopyingWarp = kSquares == 2;
  static constexpr bool kAdds = takes_add(kKind);
  static constexpr int kSplitters = kSplittersOf<kSquares>;

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

  // Starts the copies of boxes, one after the other. Where engines share samples it also says of
  // each slab what the scale is, or that there are no more.
  static constexpr float kNoMore = -1.0f;
  struct Nothing {
    __device__ explicit Nothing(const BulkLoader&) {}
  };
  struct Copies {
    const BulkLoader& loader;
    typename Base::Marching slabs;
    int box = 0;  // of the slab
    int slot = 0;
    bool ended = false;

    __device__ explicit Copies(const BulkLoader& l) : loader(l), slabs(l) {}
    __device__ bool more() const { return kSelects<kEngine> ? !ended : slabs.more(); }
    __device__ void start_next(bool starts) {
      if (!slabs.more()) {
        if (kSelects<kEngine> && starts && !ended) {
          loader.shared.raw_scale[slot] = kNoMore;
          ptx::mbarrier_arrive(&loader.shared.raw_full[slot]);
        }
        ended = true;
        return;
      }
      if (starts) start(slabs.slab());
      if (++box == kBoxes) {
        box = 0;
        slabs.next();
      }
      if (++slot == loader.c.raw_slots) slot = 0;
    }

   private:
    __device__ void start(const typename Base::Slab& slab) const {
      const Parameters& p = loader.p;
      uint64_t* barrier = &loader.shared.raw_full[slot];
      if constexpr (kSelects<kEngine>) loader.shared.raw_scale[slot] = slabs.scale();
      ptx::mbarrier_arrive_expect(barrier, kBoxChannels * p.box_y * p.box_x * sizeof(Io));
      ptx::tensor_copy_kept(
          loader.shared.dynamic + loader.c.raw_at + slot * loader.c.raw_slot_bytes, &p.x_map,
          slab.tile.x + (loader.c.x_min & -kWhole), slab.tile.y + loader.c.y_min, slab.tile.z,
          slab.chunk * kChunk + box * kBoxChannels, slab.tile.n, barrier);
    }
  };

  // A task is four neighbours of a row of the box and eight channels. Registers are short.
  struct Quad {
    uint32_t from;           // bytes into the slot
    int row;                 // bytes into the slab, of the first of the four; may start before it
    uint32_t eight_and_own;  // eight channels of the box; from bit 4 on, which of the four are the
                             // slab's
    __device__ int eight() const { return static_cast<int>(eight_and_own & 15); }
    __device__ bool owns(int i) const { return eight_and_own >> (4 + i) & 1; }
  };
  __device__ Quad quad(int index) const {
    const int row = index / c.quads_of_row;
    const int x = index % c.quads_of_row * 4;
    const int y = row % c.slab_y;
    const int eight = row / c.slab_y;
    const int slab_x = x - (c.x_min & (kWhole - 1));
    uint32_t own = 0;
    for (int i = 0; i < 4; ++i) own |= (slab_x + i >= 0 && slab_x + i < c.slab_x) << i;
    return {static_cast<uint32_t>(((eight * 8 * p.box_y + y) * p.box_x + x) * sizeof(Io)),
            (y * c.slab_x + slab_x) * kRowBytes, eight | own << 4};
  }

  // The roles of a warpgroup. Where tiles have two squares a warp starts copies and the others
  // split what arrives; else all four split, and a thread of the first starts copies between.
  __device__ void bring_x(int thread) const {
    if (!kCopyingWarp || thread < kSplitters) {
      split_boxes(thread);
    } else {
      copy_boxes(thread % 32 == 0);
    }
  }

  // The role of a warp, of which one thread starts copies: of x, and of add where it comes to
  // slots, whichever has room.
  __device__ void copy_boxes(bool starts) const {
    if (starts) ptx::grid_dependency_wait();
    uint32_t parity = 1;  // of x
    Copies x(*this);
    const auto start_x = [&] {
      x.start_next(starts);
      if (x.slot == 0) parity ^= 1;
    };
    if constexpr (kAdds) {
      AddCopies<kEngine, Io, kN> add(*this);
      while (x.more() || add.more()) {
        const bool x_goes_on =
            x.more() && __all_sync(~0u, ptx::mbarrier_test_wait(&shared.raw_empty[x.slot], parity));
        if (x_goes_on) start_x();
        const bool add_goes_on = add.more() && __all_sync(~0u, add.has_room());
        if (add_goes_on) add.start_next(starts);
        if (!x_goes_on && !add_goes_on) __nanosleep(32);
      }
    } else {
      while (x.more()) {
        wait(&shared.raw_empty[x.slot], parity);
        start_x();
      }
    }
  }

  // The role of kSplitters threads.
  __device__ void split_boxes(int thread) const {
    // What a thread takes of a box is worked out once where it is not more than this.
    constexpr int kSettled = kCopyingWarp && sizeof(Io) == 2 ? 2 : 1;
    const bool settled = c.quads <= kSettled * kSplitters;
    Quad q[kSettled];
    const auto settle = [&](int first) {
#pragma unroll
      for (int k = 0; k < kSettled; ++k) q[k] = quad(min(first + k * kSplitters, c.quads - 1));
    };
    std::conditional_t<kCopyingWarp, Nothing, Copies> copies(*this);
    if constexpr (!kCopyingWarp) {
      if (thread == 0) ptx::grid_dependency_wait();
      for (int i = 0; i < c.raw_slots; ++i) copies.start_next(thread == 0);
    }
    // While the first boxes are on their way.
    settle(thread);
    int slot = 0;
    uint32_t stage = 0;
    uint32_t parities = 0;  // bit 0: of the slot; bit 1: of the stage
    for (uint32_t left = kSelects<kEngine> ? 1 : fills(); left != 0; left -= !kSelects<kEngine>) {
      float scale = 1.0f;
      for (int box = 0; box < kBoxes; ++box) {
        wait(&shared.raw_full[slot], parities & 1);
        if (box == 0) {
          if constexpr (kSelects<kEngine>) {
            // Read by the thread that gives the slot back.
            scale = __shfl_sync(~0u, thread % 32 == 0 ? shared.raw_scale[slot] : 0.0f, 0);
            if (scale == kNoMore) return;
          }
          begin_fill(thread, {stage, parities >> 1});
        }
        const uint32_t from =
            ptx::shared_address(shared.dynamic) + c.raw_at + slot * c.raw_slot_bytes;
        const int eight = box * (kBoxChannels / 8);
        for (int first = thread; first < c.quads; first += kSettled * kSplitters) {
          if (!settled) settle(first);
#pragma unroll
          for (int k = 0; k < kSettled; ++k) {
            if (first + k * kSplitters < c.quads) {
              split_quad(q[k], eight, from, stage_at(stage), scale);
            }
          }
        }
        if (box == kBoxes - 1) {
          ptx::fence_proxy_async();
          ptx::mbarrier_arrive(&shared.full[stage]);
        }
        __syncwarp();
        if (thread % 32 == 0) ptx::mbarrier_arrive(&shared.raw_empty[slot]);
        if constexpr (!kCopyingWarp) {
          if (thread < 32) {
            wait(&shared.raw_empty[slot], parities & 1);
            copies.start_next(thread == 0);
          }
        }
        if (++slot == c.raw_slots) {
          slot = 0;
          parities ^= 1;
        }
      }
      if (++stage == static_cast<uint32_t>(c.stages)) {
        stage = 0;
        parities ^= 2;
      }
    }
  }

  // Everything is read before any of it is split: shared memory is slow to answer while the tensor
  // cores read it.
  // first_eight: of the box, in the slab.
  __device__ void split_quad(const Quad& q, int first_eight, uint32_t slot, uint32_t stage,
                             float scale) const {
    const int eight = first_eight + q.eight();
    const uint32_t channel_bytes = p.box_y * p.box_x * sizeof(Io);
    uint32_t row = stage + q.row;
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
        if (q.owns(i)) {
          Base::scatter(row, eight, c.slab_bytes / Base::kParts, scale, value);
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
        if (q.owns(i)) {
          ptx::store_shared(row + swizzled(row, eight),
                            make_uint4(pair(0), pair(2), pair(4), pair(6)));
        }
      }
    }
  }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_BULK_LOADER_CUH_
