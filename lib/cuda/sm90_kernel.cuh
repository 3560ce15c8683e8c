// SPDX-License-Identifier: Apache-2.0
//
// The fused kernel of "cuda/sm90": transposed convolution by wgmma and the epilogue behind it, one
// persistent block a multiprocessor. A block serves one class of outputs (sm90_layout.h), whose
// weights stay in shared memory where they fit. Its roles run side by side:
//   load_weights  one warp; bulk copies, once or through a ring
//   load_x        seven warps; channels of a position gathered, split into parts, to a stage
//   multiply, finish  two warpgroups that take turns: one multiplies while the other finishes
// Accumulators that are not finite are computed once more by plain FMA (exact_tile): products of
// parts do not carry infinities.
#ifndef VOLUP_CUDA_SM90_KERNEL_CUH_
#define VOLUP_CUDA_SM90_KERNEL_CUH_

#include "cuda/ptx.h"
#include "cuda/sm90_layout.h"

namespace volup::sm90 {

__device__ inline void wait(uint64_t* barrier, uint32_t parity) {
#if defined(VOLUP_SM90_WATCHDOG)
  for (uint32_t spin = 0; !ptx::mbarrier_try_wait(barrier, parity); ++spin) {
    if (spin > (1u << 22)) __trap();
  }
#else
  while (!ptx::mbarrier_try_wait(barrier, parity)) {
  }
#endif
}

__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(__half v) { return __half2float(v); }
__device__ inline float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }

// Operands in shared memory have rows of 64 bytes, swizzled: where the 16 bytes eight of the row at
// address are. Depends on the address itself, so that a row can be the first of a matrix wherever
// it lies: taps are shifts of one slab.
__device__ inline uint32_t swizzled(uint32_t address, uint32_t eight) {
  return (eight ^ (address >> 7 & 3)) * 16;
}

// Two neighbours in memory.
template <typename Io>
struct Pair;
template <>
struct Pair<float> {
  using Type = float2;
  static __device__ float2 load(const float2* at) { return __ldcs(at); }
  static __device__ void store(float2* at, float a, float b) { __stcs(at, make_float2(a, b)); }
  static __device__ float one(float v) { return v; }
};
template <>
struct Pair<__half> {
  using Type = uint32_t;
  static __device__ float2 load(const uint32_t* at) {
    const uint32_t bits = __ldcs(at);
    return __half22float2(reinterpret_cast<const __half2&>(bits));
  }
  static __device__ void store(uint32_t* at, float a, float b) { __stcs(at, ptx::pack_fp16(a, b)); }
  static __device__ __half one(float v) { return __float2half_rn(v); }
};
template <>
struct Pair<__nv_bfloat16> {
  using Type = uint32_t;
  static __device__ float2 load(const uint32_t* at) {
    const uint32_t bits = __ldcs(at);
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000u));
  }
  static __device__ void store(uint32_t* at, float a, float b) { __stcs(at, ptx::pack_bf16(a, b)); }
  static __device__ __nv_bfloat16 one(float v) { return __float2bfloat16_rn(v); }
};

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
  work.tiles = work.tiles_x * work.tiles_y * work.positions_z * p.n;
  work.rank = rank;
  work.ranks = ranks;
  work.slabs = p.chunks * c.planes;
  work.block_bytes = parts * kChunk * channels * 2;
  work.positions = c.slab_y * c.slab_x;
  work.slab_bytes = parts * kChunk * 2 * work.positions;
  work.fills = c.whole ? 1 : work.slabs * (parts > 1 ? 2 : 1);
  work.stages_at = c.resident ? static_cast<int>(c.weight_bytes) : kSlots * work.block_bytes;
  return work;
}
// A tile, or a distance between tiles, as digits of its index: n, z, y, x.
struct Digits {
  int n, z, y, x;

  __device__ Digits(const Work& work, uint32_t index) {
    x = static_cast<int>(index % work.tiles_x);
    index /= work.tiles_x;
    y = static_cast<int>(index % work.tiles_y);
    index /= work.tiles_y;
    z = static_cast<int>(index % work.positions_z);
    n = static_cast<int>(index / work.positions_z);
  }
  // Without the divisions that a new index would need.
  __device__ void add(const Work& work, const int4& step) {
    x += step.x;
    int carry = x >= static_cast<int>(work.tiles_x);
    x -= carry ? work.tiles_x : 0;
    y += step.y + carry;
    carry = y >= static_cast<int>(work.tiles_y);
    y -= carry ? work.tiles_y : 0;
    z += step.z + carry;
    carry = z >= static_cast<int>(work.positions_z);
    z -= carry ? work.positions_z : 0;
    n += step.w + carry;
  }
};
struct Tile {
  int n, z, y, x;  // y and x of the first position

  __device__ Tile(const Parameters& p, const Digits& digits)
      : n(digits.n), z(digits.z), y(digits.y * kTileEdge), x(digits.x * p.tile_x) {}
};

// Where the steps of a tile find their operands, accumulator by accumulator.
__device__ inline void list_steps(Shared& shared) {
  const Class& c = shared.now;
  const Work& work = shared.work;
  const int per_slab = c.steps[0] + c.steps[1];
  for (int block = threadIdx.x; block < work.slabs * per_slab; block += blockDim.x) {
    const int slab = block / per_slab;
    const int step = block % per_slab;
    const int j = step >= c.steps[0];
    const int own = step - (j == 0 ? 0 : c.steps[0]);
    const int at = (j == 0 ? 0 : work.slabs * c.steps[0]) + slab * c.steps[j] + own;
    shared.steps[at] = make_uint2((slab * work.slab_bytes + kRowBytes * c.step_offset[j][own]) / 16,
                                  block * work.block_bytes / 16);
  }
}

template <Engine kEngine, EpilogueKind kKind, typename Io, int kN>
__device__ __noinline__ void exact_tile_apart(const Parameters& p, Shared& shared, uint32_t index,
                                              int thread);

template <Engine kEngine, EpilogueKind kKind, typename Io, int kN>
struct Fused {
  static constexpr int kParts = kPartsOf<kEngine>;
  static constexpr int kPasses = kParts > 1 ? 2 : 1;
  using Operand = std::conditional_t<kEngine == Engine::kFp16x1, __half, __nv_bfloat16>;
  using Vector = typename Pair<Io>::Type;
  static constexpr bool kAdds = takes_add(kKind);
  static constexpr bool kCouples = couples_channels(kKind);

  const Parameters& p;
  Shared& shared;
  const Class& c;
  const Work& work;

  __device__ Fused(const Parameters& parameters, Shared& s)
      : p(parameters), shared(s), c(s.now), work(s.work) {}
  __device__ unsigned char* stage_at(uint32_t stage) const {
    return shared.dynamic + work.stages_at + stage * c.stage_bytes;
  }

  // Tiles are dealt in groups of neighbours, one a warpgroup. Where weights go through the ring
  // all warpgroups always take part, on a tile past the end too.
  __device__ uint32_t groups() const { return (work.tiles + kConsumers - 1) / kConsumers; }
  // Stages are filled for the warpgroups in turn.
  __device__ uint32_t fill_number(uint32_t ordinal, int fill, int w) const {
    return (ordinal * work.fills + fill) * kConsumers + w;
  }

  // ---- WkEights ---------------------------------------------------------------------------------

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
      for (int pass = 0; pass < kPasses; ++pass) {
        // The main product needs the leading parts alone.
        const uint32_t bytes = pass == kPasses - 1 ? work.block_bytes / kParts : work.block_bytes;
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
    uint32_t place = 0;  // x, y, z from the tile's first position plus 128, channels that exist
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

  __device__ void load_tile(int thread, const Tile& tile, bool exists, int fill, int tasks,
                            bool settled, uint32_t number, Task (&task)[kBatch]) const {
    const int64_t plane = static_cast<int64_t>(p.id) * p.ih * p.iw;
    const Io* x = static_cast<const Io*>(p.x) + tile.n * p.ci * plane +
                  (static_cast<int64_t>(tile.z) * p.ih + tile.y) * p.iw + tile.x;
    const uint32_t stage = number & ((1u << c.stages_log2) - 1);
    for (int first = thread; first < tasks + thread; first += kLoaders * kBatch) {
      if (!settled) settle(task, first, tasks, fill);
      float value[kBatch][8];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) gather(x, tile, exists, task[b], plane, value[b]);
      if (first == thread) wait(&shared.empty[stage], (number >> c.stages_log2 & 1) ^ 1);
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

  __device__ void settle(Task (&task)[kBatch], int first, int tasks, int fill) const {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) task[b] = make_task(first + b * kLoaders, tasks, fill);
  }

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

  // ---- Products --------------------------------------------------------------------------------

  using Accumulators = float[2][kN / 2];

  struct Progress {
    uint32_t number = 0;  // weight blocks consumed
    uint32_t started[2];  // 0 until an accumulator has its first product
  };

  // The products of a step: a part of x with one of w, the small ones or the main one. x_at and
  // w_at: addresses in 16 bytes.
  template <bool kSmall>
  __device__ void multiply_step(float (&acc)[kN / 2], uint32_t x_at, uint32_t w_at,
                                uint32_t& started) const {
    const uint64_t x_rows = ptx::matrix_descriptor_64(0, kRowBytes * c.slab_x);
    const uint64_t w_rows = ptx::matrix_descriptor_64(0, kRowBytes * 8);
    const uint32_t x_part = kRowBytes / 16 * work.positions;
    constexpr uint32_t kWPart = kRowBytes / 16 * kN;
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
#pragma unroll
      for (int sum = kParts - 1; sum >= 0; --sum) {
        if (kSmall != (sum > 0)) continue;
#pragma unroll
        for (int a = 0; a <= sum; ++a) {
          ptx::wgmma<kN, Operand>(acc, x_rows | (x_at + a * x_part + 2 * k),
                                  w_rows | (w_at + (sum - a) * kWPart + 2 * k), started);
          started = 1;
        }
      }
    }
  }

  // One pass over a whole tile with resident weights. Small products come first over the whole of
  // K, so that rounding towards zero meets few large sums.
  template <bool kSmall>
  __device__ void multiply_tile(Accumulators& acc, uint32_t stage, Progress& progress) const {
    const uint32_t weights = ptx::shared_address(shared.dynamic);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int count = work.slabs * c.steps[j];
      const uint2* step = &shared.steps[j == 0 ? 0 : work.slabs * c.steps[0]];
#pragma unroll 2
      for (int i = 0; i < count; ++i) {
        const uint2 s = step[i];
        multiply_step<kSmall>(acc[j], (stage >> 4) + s.x, (weights >> 4) + s.y,
                              progress.started[j]);
      }
    }
  }

  // One pass over slabs [first, last), whose first one lies at stage; weights may come by the ring.
  template <bool kSmall>
  __device__ void multiply_slabs(Accumulators& acc, int first, int last, uint32_t stage,
                                 Progress& progress) const {
    const uint32_t weights = ptx::shared_address(shared.dynamic);
    for (int slab = first; slab < last; ++slab) {
      uint32_t block = slab * (c.steps[0] + c.steps[1]);
      const uint32_t slab_at = stage + (slab - first) * work.slab_bytes;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        for (int step = 0; step < c.steps[j]; ++step, ++block) {
          const uint32_t slot = c.resident ? block : progress.number % kSlots;
          if (!c.resident) wait(&shared.slot_full[slot], progress.number / kSlots & 1);
          ptx::wgmma_fence();
          multiply_step<kSmall>(acc[j], (slab_at + kRowBytes * c.step_offset[j][step]) >> 4,
                                (weights + slot * work.block_bytes) >> 4, progress.started[j]);
          ptx::wgmma_commit();
          ptx::wgmma_wait<0>();
          if (!c.resident && threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.slot_empty[slot]);
          ++progress.number;
        }
      }
    }
  }

  // ---- Epilogue --------------------------------------------------------------------------------

  // Where a thread's values belong: two rows y, one column x an accumulator, channels
  // 8 i + e after its first.
  struct Outputs {
    int64_t first;              // element offset of row 0, accumulator 0, first channel
    int row_step, column_step;  // elements to the other row, to the other accumulator
    bool whole;                 // all of the tile exists, and pairs of columns can go together
    bool row[2], column[2];     // exist
    int channels;               // that exist from its first channel on
  };

  __device__ Outputs locate(const Tile& tile, bool exists, int warp, int lane) const {
    Outputs o;
    const int channel = c.first_channel + lane % 4 * 2;
    const int z = tile.z * p.stride_z + c.phase_z;
    const int y = (tile.y + 2 * warp) * p.stride_y + c.phase_y;
    const int x = (tile.x + c.shift_x[0] + lane / 4) * p.stride_x + c.phase_x[0];
    o.first = (((static_cast<int64_t>(tile.n) * p.co + channel) * p.od + z) * p.oh + y) * p.ow + x;
    o.row_step = p.stride_y * p.ow;
    o.column_step = (c.shift_x[1] - c.shift_x[0]) * p.stride_x + c.phase_x[1] - c.phase_x[0];
    o.whole = p.paired && exists && c.first_channel + kN <= p.co &&
              (tile.y + kTileEdge - 1) * p.stride_y + c.phase_y < p.oh &&
              (tile.x + kTileEdge - 1) * p.stride_x + c.phase_x[1] < p.ow;
    o.row[0] = exists && y < p.oh;
    o.row[1] = exists && y + p.stride_y < p.oh;
    o.column[0] = x < p.ow;
    o.column[1] = c.accumulators == 2 && x + o.column_step < p.ow;
    o.channels = p.co - channel;
    return o;
  }

  // Elements between channels of the output.
  __device__ int64_t plane() const { return static_cast<int64_t>(p.od) * p.oh * p.ow; }

  // Calls body(i, e, h, pointer to the value of accumulator 0) for all rows and channels; for
  // those that exist where kWhole is false.
  template <bool kWhole, typename Pointer, typename Body>
  __device__ void for_each_output(const Outputs& o, Pointer tensor, const Body& body) const {
    Pointer at = ptx::opaque(tensor + o.first);
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (kWhole || (o.row[h] && 8 * i + e < o.channels)) {
            body(i, e, h, h == 0 ? at : at + o.row_step);
          }
        }
        at = ptx::opaque(at + (e == 0 ? plane() : 7 * plane()));
      }
    }
  }

  // add of a whole tile: kAhead groups of 8 channels are under way before the products are awaited,
  // the others follow as registers come free.
  static constexpr int kGroups = kN / 8;
  static constexpr int kAhead = kAdds ? 5 : 1;
  struct Added {
    const Io* next;
    float2 value[kAhead][2][2];
  };

  __device__ void load_group(const Outputs& o, Added& added, int i) const {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Io* at = h == 0 ? added.next : added.next + o.row_step;
        added.value[i % kAhead][e][h] = Pair<Io>::load(reinterpret_cast<const Vector*>(at));
      }
      added.next = ptx::opaque(added.next + (e == 0 ? plane() : 7 * plane()));
    }
  }

  // From accumulators to outputs. False where plain FMA must have the word.
  template <bool kWhole>
  __device__ bool finish(Accumulators& acc, Added& added, const Outputs& o, int lane) const {
    const float* bias = &shared.bias[lane % 4 * 2];
    float check = 0.0f;  // stays 0 as long as all is finite
    if constexpr (kKind == EpilogueKind::kSoftmaxSigmoid) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (kWhole || j < c.accumulators) softmax_sigmoid_rows(acc[j], bias, check);
      }
    }
    for_each_output<kWhole>(o, static_cast<Io*>(p.out), [&](int i, int e, int h, Io* at) {
      float value[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        value[j] = acc[j][4 * i + 2 * h + e];
        if constexpr (kKind != EpilogueKind::kSoftmaxSigmoid) {
          if (kWhole || o.column[j]) check = fmaf(value[j], 0.0f, check);
          value[j] += bias[8 * i + e];
        }
        if constexpr (kAdds && kWhole) {
          const float2 a = added.value[i % kAhead][e][h];
          value[j] = add_hardswish(value[j] + (j == 0 ? a.x : a.y));
        } else if constexpr (kAdds) {
          const Io* add = static_cast<const Io*>(p.add) + (at - static_cast<Io*>(p.out));
          if (o.column[j]) value[j] = add_hardswish(value[j] + to_float(add[j * o.column_step]));
        }
      }
      if constexpr (kWhole) {
        Pair<Io>::store(reinterpret_cast<Vector*>(at), value[0], value[1]);
      } else {
        if (o.column[0]) at[0] = Pair<Io>::one(value[0]);
        if (o.column[1]) at[o.column_step] = Pair<Io>::one(value[1]);
      }
      if constexpr (kAdds && kWhole) {
        if (e == 1 && h == 1 && i + kAhead < kGroups) load_group(o, added, i + kAhead);
      }
    });
    return check == 0.0f;
  }

  // With clamp_min 0 and clamp_max = divisor, clamp(t + shift, 0, divisor) / divisor saturates.
  __device__ float add_hardswish(float t) const {
    return t * ptx::fma_saturate(t, p.gate_scale, p.gate_shift) * t;
  }

  // A row's channels are spread over the four threads of a quad. Bias of channels that do not exist
  // is -inf.
  __device__ static void softmax_sigmoid_rows(float (&acc)[kN / 2], const float* bias,
                                              float& check) {
    constexpr float kLog2E = 1.44269504f;
    float maximum[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float b = bias[8 * i + e] * kLog2E;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& v = acc[4 * i + 2 * h + e];
          v = fmaf(v, kLog2E, b);
          maximum[h] = fmaxf(maximum[h], v);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      maximum[h] = fmaxf(maximum[h], __shfl_xor_sync(~0u, maximum[h], 1));
      maximum[h] = fmaxf(maximum[h], __shfl_xor_sync(~0u, maximum[h], 2));
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& v = acc[4 * i + 2 * h + e];
          v = ptx::ex2(v - maximum[h]);
          sum += v;
        }
      }
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      check = fmaf(sum, 0.0f, check);
      const SigmoidOfProbability sigmoid(ptx::rcp(sum));
#pragma unroll
      for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) acc[4 * i + 2 * h + e] = sigmoid(acc[4 * i + 2 * h + e]);
      }
    }
  }

  // sigmoid(scale * v) for scale * v in [0, 1], to 1e-7: an odd minimax polynomial around 1/2
  // instead of two special functions.
  struct SigmoidOfProbability {
    float c1, c3, c5, c7;
    __device__ explicit SigmoidOfProbability(float scale) {
      const float square = scale * scale;
      c1 = 0.249999419f * scale;
      c3 = -0.0208254103f * scale * square;
      c5 = 0.00205392903f * scale * square * square;
      c7 = -1.69423758e-4f * scale * square * square * square;
    }
    __device__ float operator()(float v) const {
      const float square = v * v;
      return fmaf(v, fmaf(fmaf(fmaf(square, c7, c5), square, c3), square, c1), 0.5f);
    }
  };

  // ---- A tile by plain FMA ---------------------------------------------------------------------

  // Bits of a packed operand as a number.
  __device__ static float operand(const unsigned char* at) {
    return to_float(*reinterpret_cast<const Operand*>(at));
  }

  __device__ float exact_logit(const Tile& tile, int j, int row, int channel) const {
    float sum = 0.0f;
    const Io* x = static_cast<const Io*>(p.x);
    for (int slab = 0; slab < work.slabs && !c.empty[j]; ++slab) {
      const int z = tile.z + c.delta_z[slab % c.planes];
      for (int step = 0; step < c.steps[j]; ++step) {
        const unsigned char* block =
            p.weights + c.weight_offset +
            (static_cast<int64_t>(slab) * (c.steps[0] + c.steps[1]) + j * c.steps[0] + step) *
                work.block_bytes;
        const int y = tile.y + c.y_min + c.step_offset[j][step] / c.slab_x + row / kTileEdge;
        const int xx = tile.x + c.x_min + c.step_offset[j][step] % c.slab_x + row % kTileEdge;
        if (z < 0 || z >= p.id || y < 0 || y >= p.ih || xx < 0 || xx >= p.iw) continue;
        for (int k = 0; k < kChunk; ++k) {
          const int64_t ci = slab / c.planes * kChunk + k;
          if (ci >= p.ci) break;
          float weight = 0.0f;
          for (int i = kParts - 1; i >= 0; --i) {
            {
              const uint32_t row = (i * kN + channel) * kRowBytes;
              weight += operand(block + row + swizzled(row, k / 8) + k % 8 * 2);
            }
          }
          const int64_t at = (((tile.n * p.ci + ci) * p.id + z) * p.ih + y) * p.iw + xx;
          sum = fmaf(to_float(x[at]), weight, sum);
        }
      }
    }
    return sum + shared.bias[channel];
  }

  __device__ void exact_tile(const Tile& tile, int thread) const {
    const int channels = min(kN, p.co - c.first_channel);
    const int64_t plane = static_cast<int64_t>(p.od) * p.oh * p.ow;
    const int per_position = kCouples ? 1 : channels;
    for (int item = thread; item < kRows * c.accumulators * per_position; item += 128) {
      const int row = item % kRows;
      const int j = item / kRows % c.accumulators;
      const int z = tile.z * p.stride_z + c.phase_z;
      const int y = (tile.y + row / kTileEdge) * p.stride_y + c.phase_y;
      const int x = (tile.x + c.shift_x[j] + row % kTileEdge) * p.stride_x + c.phase_x[j];
      if (y >= p.oh || x >= p.ow) continue;
      const int64_t first =
          (((static_cast<int64_t>(tile.n) * p.co + c.first_channel) * p.od + z) * p.oh + y) * p.ow +
          x;
      Io* out = static_cast<Io*>(p.out) + first;
      const auto logit = [&](int64_t k) { return exact_logit(tile, j, row, static_cast<int>(k)); };
      if constexpr (kKind == EpilogueKind::kSoftmaxSigmoid) {
        softmax_sigmoid<float>(channels, logit, [&](int64_t k, float value) {
          out[k * plane] = Pair<Io>::one(value);
        });
      } else {
        const int channel = item / (kRows * c.accumulators);
        float value = logit(channel);
        if constexpr (kAdds) {
          const float a = to_float(static_cast<const Io*>(p.add)[first + channel * plane]);
          value = hardswish_product(value + a, p.epilogue);
        }
        out[channel * plane] = Pair<Io>::one(value);
      }
    }
  }

  // ---- Consumers -------------------------------------------------------------------------------

  __device__ void consume(int w, int thread) const {
    Progress progress;
    if (c.resident) wait(&shared.slot_full[0], 0);
    ptx::grid_dependency_wait();
    Digits digits(work, work.rank * kConsumers + w);
    uint32_t ordinal = 0;
    for (uint32_t group = work.rank; group < groups(); group += work.ranks, ++ordinal) {
      const uint32_t index = group * kConsumers + w;
      const bool exists = index < work.tiles;
      if (!exists && c.resident) break;
      consume_tile(w, thread, ordinal, exists, Tile(p, digits), progress);
      digits.add(work, shared.to_next_own);
      // Orders the stores of the warpgroup before those of exact_tile.
      ptx::named_barrier_sync(1 + w, 128);
      if (shared.not_finite[w] != 0) {
        exact_tile_apart<kEngine, kKind, Io, kN>(p, shared, index, thread);
        ptx::named_barrier_sync(1 + w, 128);
        if (thread == 0) shared.not_finite[w] = 0;
        ptx::named_barrier_sync(1 + w, 128);
      }
    }
  }

  __device__ void consume_tile(int w, int thread, uint32_t ordinal, bool exists, const Tile& tile,
                               Progress& progress) const {
    const int lane = thread % 32;
    const Outputs outputs = locate(tile, exists, thread / 32, lane);
    float acc[2][kN / 2];
    Added added;
    progress.started[0] = progress.started[1] = 0;
    const auto stage_of = [&](int fill) {
      return fill_number(ordinal, fill, w) & ((1u << c.stages_log2) - 1);
    };
    const auto await = [&](int fill) {
      wait(&shared.full[stage_of(fill)], fill_number(ordinal, fill, w) >> c.stages_log2 & 1);
      return ptx::shared_address(stage_at(stage_of(fill)));
    };
    const bool whole = c.whole && c.resident;
    if (whole) {
      if (w > 0 || ordinal > 0) wait(&shared.turn[w], (w > 0 ? ordinal : ordinal - 1) & 1);
      const uint32_t stage = await(0);
      ptx::wgmma_fence();
      if constexpr (kPasses == 2) multiply_tile<true>(acc, stage, progress);
      multiply_tile<false>(acc, stage, progress);
      ptx::wgmma_commit();
      if (lane == 0) ptx::mbarrier_arrive(&shared.turn[(w + 1) % kConsumers]);
    } else {
      for (int fill = 0; fill < work.fills; ++fill) {
        const uint32_t stage = await(fill);
        for (int pass = 0; pass < (c.whole ? kPasses : 1); ++pass) {
          const bool small = c.whole ? pass + 1 < kPasses : fill < work.fills / kPasses;
          const int first = c.whole ? 0 : fill % work.slabs;
          const int last = c.whole ? work.slabs : first + 1;
          if (kPasses == 2 && small) {
            multiply_slabs<kPasses == 2>(acc, first, last, stage, progress);
          } else {
            multiply_slabs<false>(acc, first, last, stage, progress);
          }
        }
        if (lane == 0) ptx::mbarrier_arrive(&shared.empty[stage_of(fill)]);
      }
    }
    if constexpr (kAdds) {
      if (outputs.whole) {
        added.next = ptx::opaque(static_cast<const Io*>(p.add) + outputs.first);
#pragma unroll
        for (int i = 0; i < kAhead; ++i) load_group(outputs, added, i);
      }
    }
    ptx::wgmma_wait<0>();
    if (whole && lane == 0) ptx::mbarrier_arrive(&shared.empty[stage_of(0)]);
    const bool finite = outputs.whole ? finish<true>(acc, added, outputs, lane)
                                      : finish<false>(acc, added, outputs, lane);
    if (!finite && exists) shared.not_finite[w] = 1;
  }
};

// Not inlined and without a Fused of the caller, whose members stay in registers.
template <Engine kEngine, EpilogueKind kKind, typename Io, int kN>
__device__ void exact_tile_apart(const Parameters& p, Shared& shared, uint32_t index, int thread) {
  const Fused<kEngine, kKind, Io, kN> fused(p, shared);
  fused.exact_tile(Tile(p, Digits(fused.work, index)), thread);
}

template <Engine kEngine, EpilogueKind kKind, typename Io, int kN>
__global__ void __launch_bounds__(kThreads, 1) fused_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  const int thread = threadIdx.x;
  int serves = 0;
  for (int low = 0, high = p.class_count; high - low > 1;) {
    const int middle = (low + high) / 2;
    (static_cast<int>(blockIdx.x) < p.first_block[middle] ? high : low) = middle;
    serves = low;
  }
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
    for (int i = 0; i < kMaxStages; ++i) {
      ptx::mbarrier_init(&shared.full[i], kLoaders);
      ptx::mbarrier_init(&shared.empty[i], 4);
    }
    for (int i = 0; i < kSlots; ++i) {
      ptx::mbarrier_init(&shared.slot_full[i], 1);
      ptx::mbarrier_init(&shared.slot_empty[i], 4 * kConsumers);
    }
    for (int i = 0; i < kConsumers; ++i) {
      ptx::mbarrier_init(&shared.turn[i], 4);
      shared.not_finite[i] = 0;
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::grid_launch_dependents();
  if (shared.now.whole && shared.now.resident) list_steps(shared);
  if (thread < 3) {
    const uint32_t distance =
        thread == 0 ? 1 : shared.work.ranks * kConsumers - (thread == 1 ? kConsumers - 1 : 0);
    const Digits digits(shared.work, distance);
    (thread == 0   ? shared.to_neighbour
     : thread == 1 ? shared.to_next_first
                   : shared.to_next_own) = make_int4(digits.x, digits.y, digits.z, digits.n);
  }
  __syncthreads();

  const Fused<kEngine, kKind, Io, kN> fused(p, shared);
  // The role must be the same for the whole warpgroup as the compiler sees it.
  const int warpgroup = __shfl_sync(~0u, thread / 128, 0);
  if (warpgroup < kConsumers) {
    ptx::registers_increase<176>();
    fused.consume(warpgroup, thread % 128);
  } else {
    ptx::registers_decrease<80>();
    const int loader = thread - kConsumers * 128;
    if (loader < kLoaders) {
      fused.load_x(loader);
    } else if (loader == kLoaders) {
      fused.load_weights();
    }
  }
}

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_KERNEL_CUH_
