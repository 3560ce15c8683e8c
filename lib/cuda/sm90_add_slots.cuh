// SPDX-License-Identifier: Apache-2.0
//
// How "cuda/sm90" gets add where tiles have two squares: in boxes of some channels of a tile's
// outputs, by bulk copies through a ring of slots, asked for early, in whole lines of memory and in
// the order of tiles.
#ifndef VOLUP_CUDA_SM90_ADD_SLOTS_CUH_
#define VOLUP_CUDA_SM90_ADD_SLOTS_CUH_

#include "cuda/ptx.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"

namespace volup::sm90 {

template <typename Io, int kN>
struct AddBoxes : Block {
  static constexpr int kChannels = add_channels(sizeof(Io));  // of a box
  static constexpr int kGroups = kChannels / 8;               // of 8 channels, of a box
  static constexpr int kBoxes = kN / kChannels;               // of a tile
  static_assert(kAddBarriers >= kMaxAddSlots);

  // Of the next box: pairs take the block's tiles in turn.
  uint32_t tile = 0;
  int box = 0;
  int slot = 0;

  __device__ explicit AddBoxes(const Block& block) : Block(block) {}

  __device__ uint32_t at() const { return c.add_at + slot * kAddSlotBytes; }
  // The barrier that tells of the box, and its parity: by its number among those of its pair.
  __device__ uint32_t number() const { return tile / kAddPairs * kBoxes + box; }
  __device__ uint64_t* full() const {
    return &shared.add_full[tile % kAddPairs][number() % kAddBarriers];
  }
  __device__ uint32_t parity() const { return number() / kAddBarriers & 1; }
};

// The boxes of a block as they are asked for.
template <Engine kEngine, typename Io, int kN>
struct AddCopies : AddBoxes<Io, kN> {
  using Base = AddBoxes<Io, kN>;
  Block::Turns<kEngine> tiles;
  uint32_t empty_parity = 1;  // of the slot's barrier

  __device__ explicit AddCopies(const Block& block) : Base(block), tiles(block, 0) {}

  __device__ bool more() const { return tiles.exist(); }
  __device__ bool has_room() const {
    return ptx::mbarrier_test_wait(&this->shared.add_empty[this->slot], empty_parity);
  }
  __device__ void start_next(bool starts) {
    if (starts) start(tiles.tile());
    if (++this->slot == this->c.add_slots) {
      this->slot = 0;
      empty_parity ^= 1;
    }
    if (++this->box == Base::kBoxes) {
      this->box = 0;
      ++this->tile;
      tiles.go_on(1);
    }
  }

 private:
  __device__ void start(const Tile& tile) const {
    ptx::mbarrier_arrive_expect(this->full(), kAddSlotBytes);
    ptx::tensor_copy(this->shared.dynamic + this->at(),
                     &this->p.output_maps[this->c.first_band + tile.band], tile.x * 2,
                     this->first_channel(kN) + this->box * Base::kChannels, tile.y, tile.z, tile.n,
                     this->full());
  }
};

// The same boxes as a warpgroup takes its half of them.
template <typename Io, int kN>
struct AddSlots : AddBoxes<Io, kN> {
  using Base = AddBoxes<Io, kN>;
  using Base::kChannels;
  using Base::kGroups;

  const int square;

  __device__ AddSlots(const Block& block, int warpgroup)
      : Base(block), square(warpgroup % kMaxSquares) {
    for (int i = 0; i < warpgroup / kMaxSquares; ++i) skip_tile();
  }

  // After a tile: those of the other pairs.
  __device__ void leave_tile() {
    this->box = 0;
    ++this->tile;
    for (int i = 1; i < kAddPairs; ++i) skip_tile();
  }

  // By all threads of the warpgroup: waits for a box and reads of it what a thread finishes. value:
  // [group][channel][row], the pair of outputs of a position.
  __device__ void take(int lane, int warp, float2 (&value)[kGroups][2][2]) {
    wait(this->full(), this->parity());
    const uint32_t from = ptx::shared_address(this->shared.dynamic) + this->at();
    const uint32_t at[2] = {from + place(lane, warp, 0), from + place(lane, warp, 1)};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int h = 0; h < 2; ++h)
          value[g][e][h] = pair_at(at[e] + (h * kChannels + 8 * g) * kRow);
      }
    }
  }
  // Gives the slot back, when what was read has been used: the next copy must not overtake reads
  // that are still under way. kUsed: all of it.
  template <bool kUsed>
  __device__ void give_back(int lane) {
    if constexpr (!kUsed) ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&this->shared.add_empty[this->slot]);
    ++this->box;
    if (++this->slot == this->c.add_slots) this->slot = 0;
  }

 private:
  __device__ void skip_tile() {
    ++this->tile;
    this->slot += Base::kBoxes;
    while (this->slot >= this->c.add_slots) this->slot -= this->c.add_slots;
  }

  static constexpr int kRow = kAddRow * sizeof(Io);
  static_assert(kRow == 128 || kRow == 64);

  // Where the pair of a thread's position is, in its row 0 and channel e of its first two: rows are
  // swizzled by their number, which other rows and groups leave as it is.
  __device__ uint32_t place(int lane, int warp, int e) const {
    const uint32_t row = 2 * warp * kChannels + lane % 4 * 2 + e;
    const uint32_t pair = square * kSquareEdge + lane / 4;
    constexpr uint32_t kPairs = 16 / (2 * sizeof(Io));  // of 16 bytes
    static_assert(sizeof(Io) == 4 ? kChannels % 8 == 0 : kChannels % 16 == 0);
    const uint32_t swizzle = sizeof(Io) == 4 ? row & 7 : row >> 1 & 3;
    return row * kRow + (pair / kPairs ^ swizzle) * 16 + pair % kPairs * (2 * sizeof(Io));
  }
  __device__ static float2 pair_at(uint32_t at) {
    if constexpr (sizeof(Io) == 4) {
      const uint2 bits = ptx::load_shared_64(at);
      return make_float2(__uint_as_float(bits.x), __uint_as_float(bits.y));
    } else {
      const uint32_t bits = ptx::load_shared(at);
      if constexpr (std::is_same_v<Io, __half>) {
        return __half22float2(reinterpret_cast<const __half2&>(bits));
      } else {
        return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000u));
      }
    }
  }
};

// Where add does not come to slots.
struct NoSlots {
  __device__ NoSlots(const Block&, int) {}
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_ADD_SLOTS_CUH_
