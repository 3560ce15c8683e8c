// SPDX-License-Identifier: Apache-2.0
//
// The roles of a block of "cuda/sm90" that fill shared memory: weights, packed on the host, by bulk
// copies; and x, copied element by element, split into parts and laid out for the products. x in
// boxes is sm90_bulk_loader.cuh's.
#ifndef VOLUP_CUDA_SM90_LOADER_CUH_
#define VOLUP_CUDA_SM90_LOADER_CUH_

#include "cuda/ptx.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"

namespace volup::sm90 {

// Parts of two values, packed; low is the even channel. scale: where the engine scales.
template <Engine kEngine>
__device__ inline void split(float low, float high, float scale,
                             uint32_t (&part)[kPartsOf<kEngine>]) {
  if constexpr (kEngine == Engine::kFp16x1) {
    part[0] = ptx::pack_fp16(low, high);
  } else if constexpr (kEngine == Engine::kFp16x2) {
    low *= scale;
    high *= scale;
    part[0] = ptx::pack_fp16(low, high);
    const float2 main = __half22float2(reinterpret_cast<const __half2&>(part[0]));
    part[1] = ptx::pack_fp16((low - main.x) * kLowScale, (high - main.y) * kLowScale);
  } else {
#pragma unroll
    for (int i = 0; i < kPartsOf<kEngine>; ++i) {
      part[i] = ptx::pack_bf16(low, high);
      low -= __uint_as_float(part[i] << 16);
      high -= __uint_as_float(part[i] & 0xFFFF0000u);
    }
  }
}

// One of the two 16-bit elements in bits.
template <typename Io>
__device__ inline Io element_of(uint32_t bits, uint32_t odd) {
  const auto half = static_cast<uint16_t>(odd ? bits >> 16 : bits);
  if constexpr (std::is_same_v<Io, __half>) {
    return __ushort_as_half(half);
  } else {
    return __ushort_as_bfloat16(half);
  }
}

template <Engine kEngine, typename Io, int kN>
struct Loader : Block {
  using Block::Block;
  static constexpr int kParts = kPartsOf<kEngine>;
  static constexpr int kBlock = kBlockBytes<kEngine, kN>;

  // ---- Weights ---------------------------------------------------------------------------------

  // All of a class's, by one thread; they stay.
  __device__ void load_resident_weights() const {
    const unsigned char* from = weights();
    ptx::mbarrier_arrive_expect(&shared.slot_full[0], static_cast<uint32_t>(c.weight_bytes));
    for (int64_t at = 0; at < c.weight_bytes; at += kBlock) {
      ptx::bulk_copy(shared.dynamic + at, from + at, kBlock, &shared.slot_full[0]);
    }
  }

  // The role of one thread: block after block as slots of the ring come free, again for every group
  // and pass.
  __device__ void load_weights_by_ring() const {
    const unsigned char* from = weights();
    uint32_t number = 0;
    for (uint32_t group = share.rank; group < groups(); group += share.ranks) {
      for (int pass = 0; pass < kPassesOf<kEngine>; ++pass) {
        // The main product needs the leading parts alone.
        const uint32_t bytes = pass == kPassesOf<kEngine> - 1 ? kBlock / kParts : kBlock;
        for (int64_t at = 0; at < c.weight_bytes; at += kBlock, ++number) {
          const uint32_t slot = number % kSlots;
          wait(&shared.slot_empty[slot], (number / kSlots & 1) ^ 1);
          ptx::mbarrier_arrive_expect(&shared.slot_full[slot], bytes);
          ptx::bulk_copy(shared.dynamic + slot * kBlock, from + at, bytes, &shared.slot_full[slot]);
        }
      }
    }
  }

  // ---- Input -----------------------------------------------------------------------------------

  // A task is one position of a slab and eight channels. A thread copies its tasks' elements to a
  // slot of raw x, each copy coalesced over the positions of a warp, with a few pieces of kBatch
  // tasks on their way at a time; then it takes what it copied itself, splits it and writes 16
  // bytes a part to the stage. What is the same for every slab is worked out once where a slab is
  // one piece.
  static constexpr int kBatch = sm90::kBatch;
  struct Task {
    int shared_at = -1;  // bytes of its row into the stage + its 16 bytes of that; -1: no task
    uint32_t place = 0;  // x and y from the tile's first position, plus 128 each
    int64_t offset = 0;  // elements from there in the slab's first channel
  };

  __device__ int tasks() const { return c.positions * kEights; }
  __device__ int pieces() const { return (tasks() + kPieceTasks - 1) / kPieceTasks; }

  // The tasks of a piece.
  __device__ void settle(Task (&task)[kBatch], int thread, int piece) const {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      task[b] = Task();
      const int index = piece * kPieceTasks + b * kLoaders + thread;
      if (index >= tasks()) continue;
      const int position = index % c.positions;
      const int eight = index / c.positions;
      const int x = c.x_min + position % c.slab_x;
      const int y = c.y_min + position / c.slab_x;
      task[b].shared_at = position * kRowBytes + eight;
      task[b].place = (x + 128) | (y + 128) << 16;
      task[b].offset = eight * 8 * p.input_plane + y * p.iw + x;
    }
  }

  // A slab of a tile: a plane and a chunk of channels.
  struct Slab {
    Tile tile;  // z: of the plane
    int chunk;
    bool exists;
  };

  // The slabs that a block's tiles need, in the order in which stages are filled.
  struct Marching {
    const Loader& loader;
    Run<kEngine> run;
    int plane = 0, chunk = 0;

    __device__ explicit Marching(const Loader& l) : loader(l), run(l) {}
    __device__ bool more() const { return run.exists(); }
    __device__ Slab slab() const { return {run.tile(plane + loader.c.z_min), chunk, true}; }
    __device__ float scale() const { return run.scale(); }
    __device__ void next() {
      if (++chunk < loader.p.chunks) return;
      chunk = 0;
      if (++plane < run.planes()) return;
      plane = 0;
      run.next();
    }
  };
  // For the warpgroups in turn; all slabs once a pass.
  struct TileByTile {
    const Loader& loader;
    uint32_t group;
    int fill = 0, w = 0;

    __device__ explicit TileByTile(const Loader& l) : loader(l), group(l.share.rank) {}
    __device__ int slabs() const { return loader.p.chunks * loader.c.planes; }
    __device__ bool more() const { return group < loader.groups(); }
    __device__ Slab slab() const {
      const uint32_t index = group * kConsumers + w;
      const int slab = fill % slabs();
      Tile tile = loader.tile_at(index);
      tile.z += loader.c.delta_z[slab % loader.c.planes];
      return {tile, slab / loader.c.planes, index < loader.c.tiles};
    }
    __device__ float scale() const { return 1.0f; }
    __device__ void next() {
      if (++w < kConsumers) return;
      w = 0;
      if (++fill < slabs() * kPassesOf<kEngine>) return;
      fill = 0;
      group += loader.share.ranks;
    }
  };

  // The role of kLoaders threads.
  __device__ void load_x(int thread) const {
    ptx::grid_dependency_wait();
    if (kScales<kEngine> || c.resident) {
      fill_stages(thread, Marching(*this));
    } else if constexpr (!kScales<kEngine>) {
      fill_stages(thread, TileByTile(*this));
    }
  }

  // Waits until a stage is free for the next fill.
  __device__ void begin_fill(int thread, const Fill& fill) const {
    wait(&shared.empty[fill.stage], fill.parity ^ 1);
    if (thread == 0) ptx::atomic_count_release(&shared.begun);
  }

  // What stays the same while a thread loads, in registers.
  struct Layout {
    int pieces, stages, raw_slots;
    uint32_t piece_stride;  // bytes between channels in a slot: raw x is [slot][8][task]
    uint32_t raw;           // the thread's first task in slot 0
    uint32_t raw_slot_bytes;
    uint32_t stage, slab_bytes;
    int64_t plane;
  };
  __device__ Layout layout(int thread) const {
    Layout l;
    l.pieces = pieces();
    l.stages = c.stages;
    l.raw_slots = c.raw_slots;
    l.piece_stride = min(tasks(), kPieceTasks) * 4;
    l.raw = ptx::shared_address(shared.dynamic) + c.raw_at + thread * 4;
    l.raw_slot_bytes = c.raw_slot_bytes;
    l.stage = stage_at(0);
    l.slab_bytes = c.slab_bytes;
    l.plane = p.input_plane;
    return l;
  }

  template <typename Slabs>
  __device__ void fill_stages(int thread, Slabs slabs) const {
    const Layout l = layout(thread);
    Task task[kBatch];
    settle(task, thread, 0);
    const bool settled = l.pieces == 1;
    uint32_t odd = 0;  // a bit a slot: where 16-bit elements start within their 4 bytes
    // Of the piece that is fetched next and of the one that is taken next: which of its slab it is.
    int fetch_piece = 0, piece = 0;
    int slot = 0;
    uint32_t fetched = 0;
    uint32_t exponents = 0;  // eight bits a slot: of its sample's scale, a power of two
    const auto fetch_next = [&](int to) {
      if (slabs.more()) {
        if (!settled) settle(task, thread, fetch_piece);
        const uint32_t first_odd = fetch(l, task, slabs.slab(), l.raw + to * l.raw_slot_bytes);
        odd = (odd & ~(1u << to)) | first_odd << to;
        if constexpr (kScales<kEngine>) {
          exponents &= ~(0xFFu << 8 * to);
          exponents |= __float_as_uint(slabs.scale()) >> 23 << 8 * to;
        }
        ++fetched;
        if (++fetch_piece == l.pieces) {
          fetch_piece = 0;
          slabs.next();
        }
      }
      ptx::copy_commit();
    };
    for (int i = 0; i < l.raw_slots; ++i) fetch_next(i);
    Fill fill = {0, 0};
    for (uint32_t taken = 0; taken != fetched; ++taken) {
      if (l.raw_slots == kMaxRawSlots) {
        ptx::copy_wait<kMaxRawSlots - 1>();
      } else {
        ptx::copy_wait<kMaxRawSlots - 2>();
      }
      if (piece == 0) begin_fill(thread, fill);
      if (!settled) settle(task, thread, piece);
      take(l, task, l.raw + slot * l.raw_slot_bytes, odd >> slot & 1,
           l.stage + fill.stage * l.slab_bytes,
           __uint_as_float((exponents >> 8 * slot & 0xFF) << 23));
      if (++piece == l.pieces) {
        piece = 0;
        ptx::fence_proxy_async();
        ptx::mbarrier_arrive(&shared.full[fill.stage]);
        if (++fill.stage == static_cast<uint32_t>(l.stages)) fill = {0, fill.parity ^ 1};
      }
      fetch_next(slot);
      if (++slot == l.raw_slots) slot = 0;
    }
    ptx::copy_wait<0>();
  }

  // Starts the copies of a piece to its slot, zero outside x and past its last channel. Returns
  // whether the tile's first element is the second 16-bit one of 4 bytes.
  __device__ uint32_t fetch(const Layout& l, const Task (&task)[kBatch], const Slab& slab,
                            uint32_t to) const {
    const Tile& t = slab.tile;
    const int channel = slab.chunk * kChunk;
    const Io* first = static_cast<const Io*>(p.x) +
                      (static_cast<int64_t>(t.n) * p.ci + channel) * l.plane +
                      (static_cast<int64_t>(t.z) * p.ih + t.y) * p.iw + t.x;
    const bool exists = slab.exists && static_cast<uint32_t>(t.z) < static_cast<uint32_t>(p.id);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (task[b].shared_at < 0) continue;
      const int xx = t.x - 128 + static_cast<int>(task[b].place & 0xFFFF);
      const int y = t.y - 128 + static_cast<int>(task[b].place >> 16);
      const bool inside = exists && static_cast<uint32_t>(y) < static_cast<uint32_t>(p.ih) &&
                          static_cast<uint32_t>(xx) < static_cast<uint32_t>(p.iw);
      const int channels = inside ? p.ci - channel - (task[b].shared_at & 3) * 8 : 0;
      const Io* at = first + task[b].offset;
      uint32_t shared_to = to + b * kLoaders * 4;
#pragma unroll
      for (int k = 0; k < 8; ++k, at += l.plane, shared_to += l.piece_stride) {
        fetch_element(shared_to, at, k < channels);
      }
    }
    return reinterpret_cast<uintptr_t>(first) >> 1 & 1;
  }

  // To 4 bytes of shared memory: an fp32 element, or a 16-bit one with its neighbour.
  __device__ void fetch_element(uint32_t to, const Io* at, bool exists) const {
    if constexpr (sizeof(Io) == 4) {
      ptx::copy_4(to, at, exists ? 4 : 0);
    } else if (p.whole_words) {
      ptx::copy_4(to, reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(at) & ~3ull),
                  exists ? 4 : 0);
    } else {
      const uint32_t bits = exists ? __ldg(reinterpret_cast<const uint16_t*>(at)) : 0;
      ptx::store_shared(to, bits | bits << 16);
    }
  }

  // From the slot to the stage, in parts.
  __device__ static void take(const Layout& l, const Task (&task)[kBatch], uint32_t from,
                              uint32_t odd, uint32_t stage, float scale) {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (task[b].shared_at < 0) continue;
      float value[8];
      uint32_t at = from + b * kLoaders * 4;
#pragma unroll
      for (int k = 0; k < 8; ++k, at += l.piece_stride) {
        const uint32_t bits = ptx::load_shared(at);
        if constexpr (sizeof(Io) == 4) {
          value[k] = __uint_as_float(bits);
        } else {
          const uint32_t second =
              (odd ^ static_cast<uint32_t>(task[b].offset) ^ k * static_cast<uint32_t>(l.plane)) &
              1;
          value[k] = to_float(element_of<Io>(bits, second));
        }
      }
      scatter(stage + (task[b].shared_at & ~3), task[b].shared_at & 3, l.slab_bytes / kParts, scale,
              value);
    }
  }

  __device__ static void scatter(uint32_t row, uint32_t eight, uint32_t part_bytes, float scale,
                                 const float (&value)[8]) {
    uint32_t part[4][kParts];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      split<kEngine>(value[2 * k], value[2 * k + 1], scale, part[k]);
    }
#pragma unroll
    for (int i = 0; i < kParts; ++i, row += part_bytes) {
      ptx::store_shared(row + swizzled(row, eight),
                        make_uint4(part[0][i], part[1][i], part[2][i], part[3][i]));
    }
  }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_LOADER_CUH_
