// SPDX-License-Identifier: Apache-2.0
//
// One task of cpu/fused: copy the input rows, then for every output row sum, finish, store. Here
// are the epilogues and the stores. Included once an instruction set.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cpu/fused_input-inl.h"
#include "cpu/fused_pairs-inl.h"
#include "cpu/fused_plan.h"
#include "cpu/fused_simd.h"
#include "cpu/fused_sums-inl.h"
#include "cpu/vector_math-inl.h"
#include "cpu/vector_rows-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#if defined(VOLUP_CPU_FUSED_TASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLUP_CPU_FUSED_TASK_INL_H_
#undef VOLUP_CPU_FUSED_TASK_INL_H_
#else
#define VOLUP_CPU_FUSED_TASK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace volup {
namespace HWY_NAMESPACE {

class TaskRunner : private TaskInput {
 public:
  explicit TaskRunner(const FusedTask& task)
      : TaskInput(task),
        channels_(p_.problem.geometry.out_channels),
        sums_(task.scratch + p_.sums_at),
        per_column_(task.scratch + p_.per_column_at),
        row_(task.scratch + p_.row_at),
        first_out_(qx_ * stride_),
        outs_(std::min(columns_ * stride_, p_.x.out - first_out_)),
        whole_pairs_(p_.pairs && io_ == DType::kFp32 && outs_ == 2 * vectors_ * kLanes),
        plane_(p_.z.out * p_.y.out * p_.x.out) {}

  void run() {
    const int64_t rows = std::min(p_.band, p_.y.base - qy_);
    copy_input(rows);
    for (int64_t rz = 0; rz < p_.z.stride; ++rz) {
      od_ = qz_ * p_.z.stride + rz;
      if (od_ >= p_.z.out) break;
      switch (p_.problem.epilogue.kind) {
        case EpilogueKind::kLogsumexpSwishClamp:
          logsumexp_rows(rz, rows);
          break;
        case EpilogueKind::kSoftmaxSigmoid:
          softmax_rows(rz, rows);
          break;
        case EpilogueKind::kIdentity:
        case EpilogueKind::kAddHardswish:
          for (int64_t row = 0; row < rows; row += p_.group) {
            elementwise_rows(rz, row, std::min(p_.group, rows - row));
          }
          break;
      }
    }
    if (p_.stream) hwy::FlushStream();
  }

 private:
  // Output rows of base rows [row, row + rows) of the band.
  int64_t end_of_outputs(int64_t row, int64_t rows) const {
    return std::min((qy_ + row + rows) * p_.y.stride, p_.y.out);
  }

  // Base rows of the band that have an output of phase ry.
  int64_t outputs_of_phase(int64_t ry) const {
    return (p_.y.out - ry + p_.y.stride - 1) / p_.y.stride - qy_;
  }

  void enter_output(int64_t oh) { at_ = (od_ * p_.y.out + oh) * p_.x.out + first_out_; }

  // Epilogues value by value: a block of channels over several rows, so that its weights stay in
  // the first-level cache and memory sees long runs of neighbours.
  void elementwise_rows(int64_t rz, int64_t first_row, int64_t rows) {
    if (whole_pairs_) return finish_rows(rz, first_row, rows);
    const int64_t first_oh = (qy_ + first_row) * p_.y.stride;
    const int64_t end_oh = end_of_outputs(first_row, rows);
    const int64_t columns = stride_ * p_.tile;
    const int64_t channel = p_.group * p_.y.stride * columns;
    const bool adds = takes_add(p_.problem.epilogue.kind);
    for (const FusedBlock& block : p_.blocks) {
      enter_output(first_oh);
      if (adds) prefetch_add_of(block, end_oh - first_oh);
      for (int64_t ry = 0; ry < p_.y.stride; ++ry) {
        enter_phase(rz, ry);
        for_rows(first_row, first_row + rows, [&](int64_t row, int64_t count) {
          const int64_t at = ((row - first_row) * p_.y.stride + ry) * columns;
          sum<Then::kStore>(block, t_.packed, row, count,
                            {sums_ + at, channel, p_.y.stride * columns, nullptr, p_.tile});
        });
      }
      for (int64_t c = 0; c < block.count; ++c) {
        for (int64_t oh = first_oh; oh < end_oh; ++oh) {
          const float* sums = sums_ + c * channel + (oh - first_oh) * columns;
          const auto value = [&](int64_t rx, int64_t v) HWY_ATTR {
            return hn::Load(D(), sums + rx * p_.tile + v * kLanes);
          };
          enter_output(oh);
          if (adds) {
            store_row_of<true>(element(block.channel + c), value);
          } else {
            store_row_of<false>(element(block.channel + c), value);
          }
        }
      }
    }
  }

  // The same where whole vectors of neighbours are stored: from the registers of the sums.
  void finish_rows(int64_t rz, int64_t first_row, int64_t rows) {
    Finish finish(p_.problem.epilogue);
    finish.channel = plane_;
    finish.row = p_.y.stride * p_.x.out;
    for (const FusedBlock& block : p_.blocks) {
      for (int64_t ry = 0; ry < p_.y.stride; ++ry) {
        enter_phase(rz, ry);
        // The last base row may have no output of this phase.
        for_rows(first_row, std::min(first_row + rows, outputs_of_phase(ry)),
                 [&](int64_t row, int64_t count) {
                   enter_output((qy_ + row) * p_.y.stride + ry);
                   const int64_t at = element(block.channel);
                   if (takes_add(p_.problem.epilogue.kind)) {
                     finish.add = static_cast<const float*>(t_.add) + at;
                   }
                   finish.out = static_cast<float*>(t_.out) + at;
                   sum_pairs<Then::kFinish>(block, t_.packed, row, count, {}, finish);
                 });
      }
    }
  }

  // Asks for the block's part of add while its sums are made.
  void prefetch_add_of(const FusedBlock& block, int64_t rows) const {
    const auto size = static_cast<int64_t>(element_size(io_));
    constexpr int64_t kLine = 64;
    for (int64_t c = 0; c < block.count; ++c) {
      const char* at = static_cast<const char*>(t_.add) + element(block.channel + c) * size;
      for (int64_t row = 0; row < rows; ++row, at += p_.x.out * size) {
        for (int64_t byte = 0; byte < outs_ * size; byte += kLine) hwy::Prefetch(at + byte);
      }
    }
  }

  void softmax_rows(int64_t rz, int64_t rows) {
    if (p_.pairs) {
      for (int64_t row = 0; row < rows; row += p_.group) {
        softmax_pairs_rows(rz, row, std::min(p_.group, rows - row));
      }
      return;
    }
    for (int64_t ry = 0; ry < p_.y.stride; ++ry) {
      enter_phase(rz, ry);
      for_rows(0, rows, [&](int64_t first, int64_t count) {
        for (int64_t row = first; row < first + count; ++row) {
          const int64_t oh = (qy_ + row) * p_.y.stride + ry;
          if (oh >= p_.y.out) break;
          enter_output(oh);
          softmax_row(row);
        }
      });
    }
  }

  void softmax_row(int64_t row) {
    const D d;
    const int64_t stride = stride_ * p_.tile;
    float* const largest = per_column_;
    float* const inverse = per_column_ + stride;
    std::fill(largest, largest + stride, -std::numeric_limits<float>::infinity());
    for (const FusedBlock& block : p_.blocks) {
      sum_phases<Then::kStoreMax>(block, t_.packed, row, 1,
                                  {sums_ + block.channel * stride, stride, 0, largest, p_.tile});
    }
    // A row with NaN, +infinity or nothing but -infinity has a NaN among e, hence in the total.
    for_columns([&](int64_t column) HWY_ATTR {
      const VF maximum = hn::Load(d, largest + column);
      VF total = set(0.0f);
      float* sums = sums_ + column;
      for (int64_t c = 0; c < channels_; ++c, sums += stride) {
        const VF below = hn::Sub(hn::Load(d, sums), maximum);
        const VF e = exp_in_range(at_least(-87.3f, below));
        total = hn::Add(total, e);
        hn::Store(e, d, sums);
      }
      hn::Store(hn::Div(set(1.0f), total), d, inverse + column);
    });
    for (int64_t c = 0; c < channels_; ++c) store_shares(c, sums_ + c * stride, inverse);
  }

  // The same from sums that are exponents of 2, which need no maximum below 100; several rows
  // together, so that memory sees longer runs of neighbours.
  void softmax_pairs_rows(int64_t rz, int64_t first_row, int64_t rows) {
    const D d;
    const int64_t first_oh = (qy_ + first_row) * p_.y.stride;
    const int64_t out_rows = end_of_outputs(first_row, rows) - first_oh;
    const int64_t columns = stride_ * p_.tile;
    const int64_t channel = p_.group * p_.y.stride * columns;
    const float* const in_base_2 = t_.packed + p_.packed_floats();
    float* const totals = per_column_;  // [output rows, rx, tile]
    std::fill(totals, totals + rows * p_.y.stride * columns, 0.0f);
    Finish later(p_.problem.epilogue);
    later.channel = plane_;
    later.row = p_.y.stride * p_.x.out;
    const bool asks = in_range_ && whole_pairs_ && !p_.stream;
    for (const FusedBlock& block : p_.blocks) {
      for (int64_t ry = 0; ry < p_.y.stride; ++ry) {
        enter_phase(rz, ry);
        const int64_t outputs = outputs_of_phase(ry);
        for_rows(first_row, first_row + rows, [&](int64_t row, int64_t count) {
          const int64_t at = ((row - first_row) * p_.y.stride + ry) * columns;
          const Place place = {sums_ + block.channel * channel + at, channel, p_.y.stride * columns,
                               totals + at, p_.tile};
          // The last base row may have no output of this phase.
          if (asks && row + count <= outputs) {
            enter_output((qy_ + row) * p_.y.stride + ry);
            later.out = static_cast<float*>(t_.out) + element(block.channel);
          } else {
            later.out = nullptr;
          }
          if (in_range_) {
            sum_pairs<Then::kStoreExp2InRange>(block, in_base_2, row, count, place, later);
          } else {
            sum_pairs<Then::kStore>(block, in_base_2, row, count, place, later);
          }
        });
      }
    }
    for (int64_t at = 0; at < out_rows * columns; at += columns) {
      if (!in_range_) exp2_below_maximum(sums_ + at, channel, totals + at);
      for_columns([&](int64_t column) HWY_ATTR {
        float* total = totals + at + column;
        hn::Store(hn::Div(set(1.0f), hn::Load(d, total)), d, total);
      });
    }
    for (int64_t c = 0; c < channels_; ++c) {
      for (int64_t row = 0; row < out_rows; ++row) {
        enter_output(first_oh + row);
        store_shares(c, sums_ + c * channel + row * columns, totals + row * columns);
      }
    }
  }

  // Makes sums exponentials and adds them up, column by column: as they are where all are below 100
  // in magnitude, else below their maximum. A column with NaN, +infinity or nothing but -infinity
  // has a NaN among its exponentials.
  HWY_NOINLINE void exp2_below_maximum(float* sums, int64_t channel, float* totals) {
    const D d;
    for_columns([&](int64_t column) HWY_ATTR {
      VF maximum = set(-std::numeric_limits<float>::infinity());
      VI magnitude = hn::Zero(DI());  // as bits: NaN is larger than every number
      for (int64_t c = 0; c < channels_; ++c) {
        const VF s = hn::Load(d, sums + c * channel + column);
        maximum = hn::Max(maximum, s);
        magnitude = hn::Max(magnitude, hn::BitCast(DI(), hn::Abs(s)));
      }
      const auto small = hn::Lt(hn::BitCast(d, magnitude), set(100.0f));
      const VF subtracted = hn::IfThenZeroElse(small, maximum);
      VF total = set(0.0f);
      for (int64_t c = 0; c < channels_; ++c) {
        float* s = sums + c * channel + column;
        const VF e = exp2_in_range(at_least(-126.0f, hn::Sub(hn::Load(d, s), subtracted)));
        total = hn::Add(total, e);
        hn::Store(e, d, s);
      }
      hn::Store(total, d, totals + column);
    });
  }

  template <typename Visit>
  HWY_INLINE void for_columns(const Visit& visit) const {
    for (int64_t rx = 0; rx < stride_; ++rx) {
      for (int64_t v = 0; v < vectors_; ++v) visit(rx * p_.tile + v * kLanes);
    }
  }

  // A row of channel c from exponentials and what they are to be multiplied by, both [rx, tile].
  void store_shares(int64_t c, const float* sums, const float* inverse) {
    const D d;
    const auto share = [&](int64_t column) HWY_ATTR {
      return sigmoid_of_share(hn::Mul(hn::Load(d, sums + column), hn::Load(d, inverse + column)));
    };
    if (!whole_pairs_) {
      return store_row_of<false>(element(c), [&](int64_t rx, int64_t v) HWY_ATTR {
        return share(rx * p_.tile + v * kLanes);
      });
    }
    float* out = static_cast<float*>(t_.out) + element(c);
    const bool stream = p_.stream && reinterpret_cast<uintptr_t>(out) % sizeof(VF) == 0;
    for (int64_t i = 0; i < vectors_ * kLanes; i += kLanes) {
      const Pair pair = interleave(share(i), share(p_.tile + i));
      put(pair.first, out + 2 * i, stream);
      put(pair.second, out + 2 * i + kLanes, stream);
    }
  }

  void logsumexp_rows(int64_t rz, int64_t rows) {
    const D d;
    const int64_t columns = stride_ * p_.tile;
    float* const totals = per_column_;  // [rows, rx, tile]
    float* const results = totals + p_.band * columns;
    const float* const in_base_2 = t_.packed + p_.packed_floats();
    const VF exp_of_shift = set(std::exp(-p_.problem.epilogue.shift));
    for (int64_t ry = 0; ry < p_.y.stride; ++ry) {
      enter_phase(rz, ry);
      std::fill(totals, totals + rows * columns, 0.0f);
      for_rows(0, rows, [&](int64_t row, int64_t count) HWY_ATTR {
        const Place place = {nullptr, 0, columns, totals + row * columns, p_.tile};
        for (const FusedBlock& block : p_.blocks) {
          if (in_range_) {
            sum<Then::kAddExp2InRange>(block, in_base_2, row, count, place);
          } else {
            sum<Then::kAddExp2>(block, in_base_2, row, count, place);
          }
        }
        const int64_t begin = row * columns;
        const int64_t end = (row + count) * columns;
        for (int64_t i = begin; i < end; i += kLanes) {
          hn::Store(swish_clamp_of(hn::Load(d, totals + i), exp_of_shift), d, results + i);
        }
        if (!in_range_) repeat_untrusted(row, count, totals, results);
      });
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t oh = (qy_ + row) * p_.y.stride + ry;
        if (oh >= p_.y.out) break;
        enter_output(oh);
        const float* of_row = results + row * columns;
        store_row_of<false>(n_ * plane_ + at_, [&](int64_t rx, int64_t v) HWY_ATTR {
          return hn::Load(d, of_row + rx * p_.tile + v * kLanes);
        });
      }
    }
  }

  HWY_NOINLINE void repeat_untrusted(int64_t first_row, int64_t rows, const float* totals,
                                     float* results) {
    // A term that was raised to 2^-126 adds at most 2^-26 of the smallest total that is trusted.
    const VF smallest = set(0x1p-100f * static_cast<float>(channels_));
    const VF infinity = set(std::numeric_limits<float>::infinity());
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      for (int v = 0; v < vectors_; ++v) {
        const int64_t at = row * stride_ * p_.tile + v * kLanes;
        const auto trusted = [&](int64_t rx) HWY_ATTR {
          const VF total = hn::Load(D(), totals + at + rx * p_.tile);
          return hn::And(hn::Ge(total, smallest), hn::Lt(total, infinity));
        };
        bool all = true;
        for (int64_t rx = 0; rx < stride_; ++rx) all &= hn::AllTrue(D(), trusted(rx));
        if (all) continue;
        for (const FusedBlock& block : p_.blocks) {
          sum<Then::kStore>(
              block, t_.packed, row, 1,
              {sums_ + block.channel * stride_ * kLanes, stride_ * kLanes, 0, nullptr, kLanes}, v);
        }
        for (int64_t rx = 0; rx < stride_; ++rx) {
          careful_logsumexp(rx, trusted(rx), results + at + rx * p_.tile);
        }
      }
    }
  }

  // For totals that left the range in which nothing is lost: by the shared formulas, voxel by
  // voxel.
  HWY_NOINLINE void careful_logsumexp(int64_t rx, hn::Mask<D> trusted, float* results) {
    HWY_ALIGN float careful[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto logit = [&](int64_t c) { return sums_[(c * stride_ + rx) * kLanes + lane]; };
      careful[lane] = swish_clamp(logsumexp<float>(channels_, logit), p_.problem.epilogue);
    }
    const VF kept = hn::Load(D(), results);
    hn::Store(hn::IfThenElse(trusted, kept, hn::Load(D(), careful)), D(), results);
  }

  // From the sum of the channels' exponentials: sigmoid(log(total) + shift) is
  // total / (total + exp(-shift)), unless that exponential is too large.
  VF swish_clamp_of(VF total, VF exp_of_shift) const {
    const Epilogue& e = p_.problem.epilogue;
    const VF l = log_of_normal(total);
    const VF gate =
        e.shift > -80.0f
            ? hn::Div(total, hn::Add(total, exp_of_shift))
            : hn::Div(set(1.0f), hn::Add(set(1.0f), exp(hn::Neg(hn::Add(l, set(e.shift))))));
    const VF gated = hn::Mul(hn::Mul(l, gate), set(1.0f / e.divisor));
    return at_most(e.clamp_max, at_least(e.clamp_min, hn::Sub(gated, set(e.subtract))));
  }

  // The epilogue of a value that stands where it is stored.
  template <bool kAdds>
  VF finished(VF value, const float* add) const {
    if constexpr (kAdds) {
      return Hardswish(p_.problem.epilogue)(hn::Add(value, hn::LoadU(D(), add)));
    } else {
      return value;
    }
  }

  // Index of the tile's first output in the row of channel c.
  int64_t element(int64_t c) const { return (n_ * channels_ + c) * plane_ + at_; }

  // Stores the outs_ outputs of the row from element at on; value(rx, v) is vector v of phase rx.
  template <bool kAdds, typename Value>
  void store_row_of(int64_t at, const Value& value) {
    const D d;
    int64_t v = 0;  // vectors of each phase that are done
    if (io_ == DType::kFp32 && stride_ <= 2) {
      float* out = static_cast<float*>(t_.out) + at;
      const float* add = kAdds ? static_cast<const float*>(t_.add) + at : nullptr;
      const int64_t whole = outs_ / (stride_ * kLanes);
      const bool stream = p_.stream && reinterpret_cast<uintptr_t>(out) % sizeof(VF) == 0;
      if (stride_ == 1) {
        for (; v < whole; ++v, out += kLanes) {
          put(finished<kAdds>(value(0, v), add), out, stream);
          if (kAdds) add += kLanes;
        }
      } else {
        for (; v < whole; ++v, out += 2 * kLanes) {
          const Pair pair = interleave(value(0, v), value(1, v));
          put(finished<kAdds>(pair.first, add), out, stream);
          put(finished<kAdds>(pair.second, kAdds ? add + kLanes : add), out + kLanes, stream);
          if (kAdds) add += 2 * kLanes;
        }
      }
    }
    const int64_t done = v * stride_ * kLanes;
    if (done >= outs_) return;
    float* const row = row_;
    for (int64_t w = v; w < vectors_; ++w) {
      float* to = row + (w - v) * stride_ * kLanes;
      if (stride_ == 2) {
        const Pair pair = interleave(value(0, w), value(1, w));
        hn::StoreU(pair.first, d, to);
        hn::StoreU(pair.second, d, to + kLanes);
      } else {
        for (int64_t rx = 0; rx < stride_; ++rx) {
          HWY_ALIGN float lanes[kLanes];
          hn::Store(value(rx, w), d, lanes);
          for (int64_t lane = 0; lane < kLanes; ++lane) to[lane * stride_ + rx] = lanes[lane];
        }
      }
    }
    const int64_t left = outs_ - done;
    if constexpr (kAdds) {
      float* const add = row_ + stride_ * p_.tile;
      load_row(io_, t_.add, at + done, left, add);
      std::fill(add + left, add + (left + kLanes - 1) / kLanes * kLanes, 0.0f);
      for (int64_t i = 0; i < left; i += kLanes) {
        hn::StoreU(finished<true>(hn::LoadU(d, row + i), add + i), d, row + i);
      }
    }
    store_row(io_, row, left, t_.out, at + done);
  }

  int64_t channels_;
  float* sums_;        // [channels at once, output rows of a group, rx, tile]
  float* per_column_;  // [2, rows, rx, tile]
  float* row_;         // [2, tile * stride]
  int64_t first_out_;  // the first output column
  int64_t outs_;       // output columns
  bool whole_pairs_;   // which are floats and whole vectors of pairs
  int64_t plane_;      // outputs of a channel
  int64_t od_ = 0;
  int64_t at_ = 0;  // the current row's place among them
};

}  // namespace HWY_NAMESPACE
}  // namespace volup
HWY_AFTER_NAMESPACE();

#endif  // VOLUP_CPU_FUSED_TASK_INL_H_
