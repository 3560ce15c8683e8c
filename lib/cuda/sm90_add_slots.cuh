// SPDX-License-Identifier: Apache-2.0
//
// How a warpgroup of "cuda/sm90" with tiles of two squares gets add: in boxes of some channels of a
// tile's outputs, by bulk copies to slots of its own, asked for early and in whole lines of memory.
#ifndef VOLUP_CUDA_SM90_ADD_SLOTS_CUH_
#define VOLUP_CUDA_SM90_ADD_SLOTS_CUH_

#include "cuda/ptx.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"

namespace volup::sm90 {

template <typename Io, int kN>
struct AddSlots : Block {
  const int warpgroup;
  // Where the next box to be taken is, over the life of a block.
  int slot = 0;
  uint32_t parity = 0;

  __device__ AddSlots(const Block& block, int w) : Block(block), warpgroup(w) {}

  static constexpr int kChannels = add_channels(sizeof(Io));  // of a box
  static constexpr int kGroups = kChannels / 8;               // of 8 channels, of a box
  static constexpr int kBoxes = kN / kChannels;               // of a tile
  static constexpr int kRow = kAddRow * sizeof(Io);
  static_assert(kRow == 128 || kRow == 64);
  static_assert(kBoxes >= kMaxAddSlots);

  // By one thread: asks for a box, to a slot that is free.
  __device__ void start(const Tile& tile, int box, int to) const {
    uint64_t* barrier = &shared.add_full[warpgroup][to];
    ptx::mbarrier_arrive_expect(barrier, kAddSlotBytes);
    ptx::tensor_copy(shared.dynamic + at(to), &p.add_maps[c.first_band + tile.band], tile.x * 2,
                     first_channel(kN) + box * kChannels, tile.y, tile.z, tile.n, barrier);
  }
  // By all threads, before a tile's first box is taken.
  __device__ void start_first(const Tile& tile) const {
    if (ptx::thread_index() % 128 == 0) {
      int to = slot;
      uint32_t next = parity;
      for (int box = 0; box < c.add_slots; ++box) {
        wait(&shared.add_empty[warpgroup][to], next ^ 1);
        start(tile, box, to);
        if (++to == c.add_slots) {
          to = 0;
          next ^= 1;
        }
      }
    }
  }

  // What a thread finishes of a box: of two rows, two channels of each group, and the pair of
  // outputs of a position of each square.
  struct Values {
    float2 pair[kGroups][2][2][kMaxSquares];  // [group][channel][row][square]
  };

  // By all threads of the warpgroup: waits for a box, reads it and asks for the one that takes its
  // slot.
  __device__ void take(const Tile& tile, int box, int lane, int warp, Values& values) {
    wait(&shared.add_full[warpgroup][slot], parity);
    const uint32_t from = ptx::shared_address(shared.dynamic) + at(slot);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int channel = 8 * g + lane % 4 * 2 + e;
#pragma unroll
          for (int s = 0; s < kMaxSquares; ++s) {
            values.pair[g][e][h][s] =
                pair_at(from, (2 * warp + h) * kChannels + channel, 8 * s + lane / 4);
          }
        }
      }
    }
    // Told through shared memory, behind the reads: a barrier of the warpgroup alone does not wait
    // for reads that are queued behind stores, and a copy may come before them.
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&shared.add_empty[warpgroup][slot]);
    if (box + c.add_slots < kBoxes && ptx::thread_index() % 128 == 0) {
      wait(&shared.add_empty[warpgroup][slot], parity);
      start(tile, box + c.add_slots, slot);
    }
    if (++slot == c.add_slots) {
      slot = 0;
      parity ^= 1;
    }
  }

 private:
  __device__ uint32_t at(int which) const {
    return c.add_at + (warpgroup * c.add_slots + which) * kAddSlotBytes;
  }
  // Outputs 2 i and 2 i + 1 of a row of the slot.
  __device__ static float2 pair_at(uint32_t slot, uint32_t row, uint32_t i) {
    const uint32_t at = slot + row * kRow;
    if constexpr (sizeof(Io) == 4) {
      const uint2 bits = ptx::load_shared_64(at + ((i / 2 ^ (row & 7)) * 16) + i % 2 * 8);
      return make_float2(__uint_as_float(bits.x), __uint_as_float(bits.y));
    } else {
      const uint32_t bits = ptx::load_shared(at + ((i / 4 ^ (row >> 1 & 3)) * 16) + i % 4 * 4);
      if constexpr (std::is_same_v<Io, __half>) {
        return __half22float2(reinterpret_cast<const __half2&>(bits));
      } else {
        return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000u));
      }
    }
  }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_ADD_SLOTS_CUH_
