// SPDX-License-Identifier: Apache-2.0
//
// How "cuda/sm90" finishes a tile: from accumulators through bias and epilogue, in registers, to
// stores or the warp's box. It tells where values were not finite; writing those anew is
// sm90_exact.cuh's.
#ifndef VOLUP_CUDA_SM90_FINISH_CUH_
#define VOLUP_CUDA_SM90_FINISH_CUH_

#include <type_traits>

#include "cuda/epilogue_math.cuh"
#include "cuda/ptx.h"
#include "cuda/sm90_add_slots.cuh"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"
#include "cuda/sm90_out_box.cuh"

namespace volup::sm90 {

// Two neighbours in memory. Stores stay in L2 as long as others do, for what fills the rest of
// their lines comes a little later.
template <typename Io>
struct Pair;
template <>
struct Pair<float> {
  using Type = float2;
  static __device__ float2 load(const float2* at) { return ptx::load_once(at); }
  static __device__ void store(float2* at, float a, float b) { *at = make_float2(a, b); }
};
template <>
struct Pair<__half> {
  using Type = uint32_t;
  static __device__ float2 load(const uint32_t* at) {
    const uint32_t bits = ptx::load_once(at);
    return __half22float2(reinterpret_cast<const __half2&>(bits));
  }
  static __device__ uint32_t pack(float a, float b) { return ptx::pack_fp16(a, b); }
  static __device__ void store(uint32_t* at, float a, float b) { *at = pack(a, b); }
};
template <>
struct Pair<__nv_bfloat16> {
  using Type = uint32_t;
  static __device__ float2 load(const uint32_t* at) {
    const uint32_t bits = ptx::load_once(at);
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000u));
  }
  static __device__ uint32_t pack(float a, float b) { return ptx::pack_bf16(a, b); }
  static __device__ void store(uint32_t* at, float a, float b) { *at = pack(a, b); }
};

// sigmoid_of_probability of two, in the arithmetic of the 16 bits that they are stored in: what is
// rounded before the last sum is a quarter of the probability at most, and a fraction of that sum's
// own rounding.
template <typename Io>
__device__ uint32_t sigmoids_of_probabilities(float a, float b) {
  using Two = std::conditional_t<std::is_same_v<Io, __half>, __half2, __nv_bfloat162>;
  const auto both = [](float v) { return Two(from_float<Io>(v), from_float<Io>(v)); };
  const Two v(from_float<Io>(a), from_float<Io>(b));
  const Two square = __hmul2(v, v);
  Two odd = __hfma2(square, both(0.00175845891f), both(-0.0206784406f));
  odd = __hfma2(odd, square, both(0.249981208f));
  const Two sum = __hfma2(v, odd, both(0.5f));
  return reinterpret_cast<const uint32_t&>(sum);
}

// A softmax's exponentials are powers of 2: bias in shared memory is scaled for that.
inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLowest = -3.0e38f;  // as maximum where there is none
template <EpilogueKind kKind>
inline constexpr float kBiasScale = kKind == EpilogueKind::kSoftmaxSigmoid ? kLog2E : 1.0f;

// kScaled: accumulators are of a scaled x and scaled weights.
template <EpilogueKind kKind, typename Io, int kN, int kSquares, bool kScaled>
struct Finish : Block {
  using Block::Block;
  using Accumulators = float[2][kN / 2];
  using Vector = typename Pair<Io>::Type;
  static constexpr bool kAdds = takes_add(kKind);
  static constexpr bool kSlots = kAdds && kSquares == 2;  // add comes to slots
  using Slots = std::conditional_t<kSlots, AddSlots<Io, kN>, NoSlots>;
  static constexpr bool kCouples = couples_channels(kKind);
  // Outputs may leave in boxes.
  static constexpr bool kBoxes = boxes_outputs(kKind, kSquares, sizeof(Io));

  // What a thread finishes a tile with, read while the products pass: shared memory and special
  // registers are slow to answer. It is not kept from tile to tile for want of registers.
  struct Own {
    int lane, warp;
    uint32_t bias_at;                 // of the thread's first channel, in shared memory
    float bias[kSlots ? 1 : kN / 4];  // of the thread's channels
    float unscale;                    // what accumulators must be multiplied by
  };
  // scale: of x, a power of two.
  __device__ Own own(float scale) const {
    Own own;
    own.unscale =
        kScaled ? __uint_as_float((254u << 23) - __float_as_uint(scale)) * p.weight_unscale : 1.0f;
    own.lane = sm90::lane();
    own.warp = sm90::warp();
    own.bias_at = ptx::shared_address(shared.bias) + own.lane % 4 * 8;
    if constexpr (!kSlots) {
#pragma unroll
      for (int i = 0; i < kN / 8; ++i) load_bias(own, i, &own.bias[2 * i]);
    }
    return own;
  }
  // The thread's two of the channels of group i.
  __device__ static void load_bias(const Own& own, int i, float* bias) {
    const uint2 bits = ptx::load_shared_64(own.bias_at + i * 32);
    bias[0] = __uint_as_float(bits.x);
    bias[1] = __uint_as_float(bits.y);
  }

  // Where a thread's values belong: two rows y, one column x an accumulator, channels
  // 8 i + e after its first.
  struct Outputs {
    int64_t first;  // element offset of row 0, accumulator 0, first channel
    bool whole;     // all of the square exists, and pairs of columns can go together
  };
  // Which of them exist, where not all do.
  struct Edges {
    bool row[2], column[2];
    int channels;  // from its first one on
  };

  // Of the tile. All channels that are coupled are in one tile. Uniform registers are too few to
  // keep this in some.
  __device__ int first_channel() const {
    return kCouples ? 0 : static_cast<int>(ptx::varying(Block::first_channel(kN)));
  }
  __device__ int first_y(const Tile& tile) const {
    return tile.y * p.stride_y + band(tile.band).phase_y;
  }
  __device__ int first_x(const Tile& tile) const {
    return (tile.x + c.shift_x[0]) * p.stride_x + c.phase_x[0];
  }
  // Elements to the other row, to the other accumulator.
  __device__ int row_step() const { return p.stride_y * p.ow; }
  __device__ int column_step() const {
    return (c.shift_x[1] - c.shift_x[0]) * p.stride_x + c.phase_x[1] - c.phase_x[0];
  }

  __device__ Outputs locate(const Own& own, const Tile& tile, bool exists) const {
    Outputs o;
    const int channel = first_channel();
    const int z = tile.z * p.stride_z + c.phase_z;
    const int64_t of_tile = static_cast<int64_t>(tile.n) * p.co * p.output_plane +
                            (static_cast<int64_t>(z) * p.oh + first_y(tile)) * p.ow + first_x(tile);
    o.first = of_tile + ((channel + own.lane % 4 * 2) * p.output_plane + 2 * own.warp * row_step() +
                         own.lane / 4 * p.stride_x);
    const bool whole = p.paired && exists && channel + kN <= p.co &&
                       first_y(tile) + (kSquareEdge - 1) * p.stride_y < p.oh &&
                       (tile.x + kSquareEdge - 1) * p.stride_x + c.phase_x[1] < p.ow;
    o.whole = __any_sync(~0u, whole);
    return o;
  }

  __device__ Edges edges(const Own& own, const Tile& tile, bool exists) const {
    Edges edges;
    const int y = first_y(tile) + 2 * own.warp * p.stride_y;
    const int x = first_x(tile) + own.lane / 4 * p.stride_x;
    edges.row[0] = exists && y < p.oh;
    edges.row[1] = exists && y + p.stride_y < p.oh;
    edges.column[0] = x < p.ow;
    edges.column[1] = c.accumulators == 2 && x + column_step() < p.ow;
    edges.channels = p.co - first_channel() - own.lane % 4 * 2;
    return edges;
  }

  struct Nothing {
    __device__ void operator()(int) const {}
  };
  // Calls body(i, e, h, pointer to the value of accumulator 0) for all rows and channels, for those
  // that exist where kWhole is false; begin(i) and end(i) around each group i of 8 channels.
  template <bool kWhole, typename Begin, typename Body, typename End>
  __device__ void for_each_output(const Outputs& o, const Edges& edges, const Begin& begin,
                                  const Body& body, const End& end) const {
    Io* at = ptx::opaque(static_cast<Io*>(p.out) + o.first);
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
      begin(i);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (kWhole || (edges.row[h] && 8 * i + e < edges.channels)) {
            body(i, e, h, h == 0 ? at : at + row_step());
          }
        }
        at = ptx::opaque(at + (e == 0 ? p.output_plane : 7 * p.output_plane));
      }
      end(i);
    }
  }

  // add, kAhead groups of 8 channels at a time: a box of a slot; or, of a whole tile, as many as
  // registers allow beside the accumulators are under way.
  static constexpr int kGroups = kN / 8;
  static constexpr int kAhead = !kAdds ? 1 : kSlots ? AddBoxes<Io, kN>::kGroups : 2;
  struct Added {
    float2 value[kAhead][2][2];
  };

  // Of group i, whose first element's output is at out.
  __device__ void load_group(const Io* out, Added& added, int i) const {
    const Io* at = ptx::opaque(static_cast<const Io*>(p.add) + (out - static_cast<Io*>(p.out)));
#pragma unroll
    for (int e = 0; e < 2; ++e) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        added.value[i % kAhead][e][h] =
            Pair<Io>::load(reinterpret_cast<const Vector*>(h == 0 ? at : at + row_step()));
      }
      if (e == 0) at = ptx::opaque(at + p.output_plane);
    }
  }

  // The groups that are under way before the products are awaited.
  __device__ void load_first_groups(const Outputs& o, Added& added) const {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      load_group(static_cast<Io*>(p.out) + o.first + 8 * i * p.output_plane, added, i);
    }
  }

  // From accumulators to the warp's box, which is sent. False where a value was not finite, of
  // positions without an output too.
  __device__ bool finish_in_box(Accumulators& acc, const Own& own, const Tile& tile) const {
    static_assert(kCouples || !kScaled);
    float check = 0.0f;
    [[maybe_unused]] float scale[2][2] = {};
    if constexpr (kCouples) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        exponentials(acc[j], own.unscale * kLog2E, own.bias, scale[j], check);
      }
    }
    const OutBox<Io, kN> box(*this, own.lane);
    box.await_read();
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const auto value = [&](int j) {
            const float sum = acc[j][4 * i + 2 * h + e];
            if constexpr (kCouples) {
              return sum * scale[j][h];
            } else {
              check = fmaf(sum, 0.0f, check);
              return sum + own.bias[2 * i + e];
            }
          };
          const float first = value(0), second = value(1);
          if constexpr (kCouples) {
            box.put(i, e, h, sigmoids_of_probabilities<Io>(first, second));
          } else {
            box.put(i, e, h, Pair<Io>::pack(first, second));
          }
        }
      }
    }
    box.send(tile, first_x(tile));
    return check == 0.0f;
  }

  // From accumulators to outputs. False where a value was not finite: the tile must be written
  // anew.
  template <bool kWhole>
  __device__ bool finish(Accumulators& acc, const Own& own, Added& added, const Outputs& o,
                         const Edges& edges, Slots& slots) const {
    if constexpr (kCouples) {
      return finish_softmax<kWhole>(acc, own, o, edges);
    } else {
      return finish_pointwise<kWhole>(acc, own, added, o, edges, slots);
    }
  }

  template <bool kWhole>
  __device__ static void store(Io* at, int column_step, const Edges& edges, float first,
                               float second) {
    if constexpr (kWhole) {
      Pair<Io>::store(reinterpret_cast<Vector*>(at), first, second);
    } else {
      if (edges.column[0]) at[0] = from_float<Io>(first);
      if (edges.column[1]) at[column_step] = from_float<Io>(second);
    }
  }

  // The same of two values of 16 bits, packed.
  template <bool kWhole>
  __device__ static void store_bits(Io* at, int column_step, const Edges& edges, uint32_t both) {
    if constexpr (kWhole) {
      *reinterpret_cast<uint32_t*>(at) = both;
    } else {
      if (edges.column[0]) at[0] = reinterpret_cast<const Io(&)[2]>(both)[0];
      if (edges.column[1]) at[column_step] = reinterpret_cast<const Io(&)[2]>(both)[1];
    }
  }

  template <bool kWhole>
  __device__ bool finish_softmax(Accumulators& acc, const Own& own, const Outputs& o,
                                 const Edges& edges) const {
    float scale[2][2] = {};  // of each accumulator's two rows
    float check = 0.0f;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (kWhole || j < c.accumulators) {
        exponentials(acc[j], own.unscale * kLog2E, own.bias, scale[j], check);
      }
    }
    for_each_output<kWhole>(
        o, edges, Nothing(),
        [&](int i, int e, int h, Io* at) {
          const auto probability = [&](int j) { return acc[j][4 * i + 2 * h + e] * scale[j][h]; };
          if constexpr (sizeof(Io) == 4) {
            store<kWhole>(at, column_step(), edges, sigmoid_of_probability(probability(0)),
                          sigmoid_of_probability(probability(1)));
          } else {
            store_bits<kWhole>(at, column_step(), edges,
                               sigmoids_of_probabilities<Io>(probability(0), probability(1)));
          }
        },
        Nothing());
    return check == 0.0f;
  }

  template <bool kWhole>
  __device__ bool finish_pointwise(Accumulators& acc, const Own& own, Added& added,
                                   const Outputs& o, const Edges& edges, Slots& slots) const {
    float check = 0.0f;              // stays 0 as long as all is finite
    [[maybe_unused]] float bias[2];  // of a group, where the thread keeps no more
    const auto begin = [&](int i) {
      if constexpr (kSlots) {
        if (i % kAhead == 0) slots.take(own.lane, own.warp, added.value);
        load_bias(own, i, bias);
      }
    };
    const auto end = [&](int i) {
      if constexpr (kSlots) {
        if (i % kAhead == kAhead - 1) slots.template give_back<kWhole>(own.lane);
      }
    };
    const auto body = [&](int i, int e, int h, Io* at) {
      float value[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        value[j] = acc[j][4 * i + 2 * h + e];
        if (kWhole || edges.column[j]) check = fmaf(value[j], 0.0f, check);
        const float b = kSlots ? bias[e] : own.bias[kSlots ? 0 : 2 * i + e];
        value[j] = kScaled ? fmaf(value[j], own.unscale, b) : value[j] + b;
        if constexpr (kSlots || (kAdds && kWhole)) {
          const float2 a = added.value[i % kAhead][e][h];
          value[j] = add_hardswish(value[j] + (j == 0 ? a.x : a.y));
        } else if constexpr (kAdds) {
          const Io* add = static_cast<const Io*>(p.add) + (at - static_cast<Io*>(p.out));
          if (edges.column[j]) {
            value[j] = add_hardswish(value[j] + to_float(add[j * column_step()]));
          }
        }
      }
      store<kWhole>(at, column_step(), edges, value[0], value[1]);
      if constexpr (kAdds && kWhole && !kSlots) {
        if (e == 1 && h == 1 && i + kAhead < kGroups) {
          load_group(at - row_step() + (8 * kAhead - 1) * p.output_plane, added, i + kAhead);
        }
      }
    };
    for_each_output<kWhole>(o, edges, begin, body, end);
    return check == 0.0f;
  }

  // With clamp_min 0 and clamp_max = divisor, clamp(t + shift, 0, divisor) / divisor saturates.
  __device__ float add_hardswish(float t) const {
    return t * ptx::fma_saturate(t, p.gate_scale, p.gate_shift) * t;
  }

  // From logits to exponentials relative to the thread's own maximum, and what turns those into
  // probabilities. A row's channels are spread over the four threads of a quad; what they tell each
  // other comes while they work. Bias is that times log2(e), -inf of channels that do not exist, of
  // which a thread may have no others; an accumulator times to_log2 is what bias is added to. check
  // becomes NaN where a logit is not finite.
  __device__ static void exponentials(float (&acc)[kN / 2], float to_log2,
                                      const float (&bias)[kN / 4], float (&scale)[2],
                                      float& check) {
    float own[2] = {kLowest, kLowest};
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float b = bias[2 * i + e];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& v = acc[4 * i + 2 * h + e];
          v = fmaf(v, to_log2, b);
          own[h] = fmaxf(own[h], v);
        }
      }
    }
    float maximum[2], sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      maximum[h] = fmaxf(own[h], __shfl_xor_sync(~0u, own[h], 1));
      maximum[h] = fmaxf(maximum[h], __shfl_xor_sync(~0u, maximum[h], 2));
    }
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& v = acc[4 * i + 2 * h + e];
          v = ptx::ex2(v - own[h]);
          sum[h] += v;
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float to_maximum = ptx::ex2(own[h] - maximum[h]);
      sum[h] *= to_maximum;
      sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
      sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
      const float reciprocal = ptx::rcp(sum[h]);
      check = fmaf(sum[h], 0.0f, fmaf(reciprocal, 0.0f, check));
      scale[h] = to_maximum * reciprocal;
    }
  }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_FINISH_CUH_
