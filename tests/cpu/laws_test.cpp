// SPDX-License-Identifier: Apache-2.0
//
// Laws of a transposed convolution that need no oracle, on the identity epilogue with integers so
// that they hold exactly; and the promise of the same bits.
#include "cpu_test.h"
#include "loud_case.h"

namespace volup::test {
namespace {

// Runs work(target) for each that takes the case.
void for_each_target(Case& c, const std::function<void(const Target&)>& work) {
  ASSERT_NE(c.model(), nullptr);
  const auto targets = targets_for(c.problem);
  ASSERT_FALSE(targets.empty()) << c.name;
  for (const Target& target : targets) {
    VOLUP_TRACE(target, c);
    work(target);
  }
}

std::vector<float> values(const Target& target, Case& c) {
  return values_of(c.problem.io, run_case(target, c));
}

constexpr const char* kShapes[] = {
    "n2 ci32 co64 i3x4x8 k3 s2 p1 op1 fp32",
    "n2 ci3 co16 i4x5x19 k3 s2 p1 fp32",
    "n1 ci6 co10 i3x4x5 k4x3x5 s3x2x1 p1x0x2 d1x2x1 g2 fp32",
};

TEST(Laws, ImpulseGivesTheKernel) {
  for (const char* shape : kShapes) {
    Case c = integer_case(problem_of(cat("I ", shape)), 3);
    const ConvTranspose3d& g = c.problem.geometry;
    const Shape5& in = c.problem.input;
    std::fill(c.x.begin(), c.x.end(), 0.0f);
    std::fill(c.bias.begin(), c.bias.end(), 0.0f);
    const std::array<int64_t, 4> at = {in[0] - 1, in[2] / 2, in[3] / 2, in[4] / 2};
    const int64_t ci = in[1] - 1;
    c.x[element_at(in, at, ci)] = 1.0f;
    for_each_target(c, [&](const Target& target) {
      auto got = values(target, c);
      const int64_t first = ci / g.in_per_group() * g.out_per_group();
      for (int64_t tap = 0; tap < g.taps(); ++tap) {
        const auto voxel = target_of(c.problem, at, tap);
        if (!voxel) continue;
        for (int64_t co = 0; co < g.out_per_group(); ++co) {
          float& value = got[element_at(c.problem.output, *voxel, first + co)];
          const auto w = static_cast<size_t>((ci * g.out_per_group() + co) * g.taps() + tap);
          ASSERT_EQ(value, c.weight[w]) << "tap " << tap << " channel " << co;
          value = 0;
        }
      }
      EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](float v) { return v == 0; }))
          << "an output beyond the kernel's reach is not 0";
    });
  }
}

TEST(Laws, LinearInInputAndWeights) {
  for (const char* shape : kShapes) {
    Case a = integer_case(problem_of(cat("I ", shape)), 5);
    std::fill(a.bias.begin(), a.bias.end(), 0.0f);
    Case b = integer_case(a.problem, 6);
    for_each_target(a, [&](const Target& target) {
      for (const bool in_weights : {false, true}) {
        Case other = a;
        Case sum = a;
        auto& part = in_weights ? other.weight : other.x;
        auto& whole = in_weights ? sum.weight : sum.x;
        part = in_weights ? b.weight : b.x;
        for (size_t i = 0; i < whole.size(); ++i) whole[i] += part[i];
        const auto one = values(target, a);
        const auto two = values(target, other);
        const auto both = values(target, sum);
        for (size_t i = 0; i < one.size(); ++i) ASSERT_EQ(one[i] + two[i], both[i]) << i;
      }
    });
  }
}

// <convT x, y> = <x, conv y>: the right side by the definition of a convolution.
TEST(Laws, AdjointOfTheConvolution) {
  for (const char* shape : kShapes) {
    Case c = integer_case(problem_of(cat("I ", shape)), 8);
    std::fill(c.bias.begin(), c.bias.end(), 0.0f);
    const ConvTranspose3d& g = c.problem.geometry;
    const Shape5& in = c.problem.input;
    const Shape5& out = c.problem.output;
    std::vector<float> y(static_cast<size_t>(count_of(out)));
    std::mt19937 random(9);
    for (float& value : y) value = static_cast<float>(static_cast<int>(random() % 17) - 8);

    double right = 0;
    for (const auto& voxel : voxels_of(in, int64_t{1} << 40)) {
      for (int64_t tap = 0; tap < g.taps(); ++tap) {
        const auto at = target_of(c.problem, voxel, tap);
        if (!at) continue;
        for (int64_t ci = 0; ci < g.in_channels; ++ci) {
          const int64_t first = ci / g.in_per_group() * g.out_per_group();
          double sum = 0;
          for (int64_t co = 0; co < g.out_per_group(); ++co) {
            const auto w = static_cast<size_t>((ci * g.out_per_group() + co) * g.taps() + tap);
            sum += double{c.weight[w]} * double{y[element_at(out, *at, first + co)]};
          }
          right += sum * double{c.x[element_at(in, voxel, ci)]};
        }
      }
    }
    for_each_target(c, [&](const Target& target) {
      const auto got = values(target, c);
      double left = 0;
      for (size_t i = 0; i < got.size(); ++i) left += double{got[i]} * double{y[i]};
      EXPECT_EQ(left, right);
    });
  }
}

TEST(Laws, InputShiftMovesTheOutputByTheStride) {
  Case c = integer_case(problem_of("I n1 ci32 co64 i5x6x9 k3 s2 p1 op1 fp32"), 10);
  const Shape5& in = c.problem.input;
  const Shape5& out = c.problem.output;
  Case shifted = c;
  for (const auto& voxel : voxels_of(in, int64_t{1} << 40)) {
    for (int64_t ci = 0; ci < in[1]; ++ci) {
      // A margin of zeros keeps the edges out of it.
      if (voxel[3] == 0 || voxel[3] >= in[4] - 2) c.x[element_at(in, voxel, ci)] = 0;
    }
  }
  for (const auto& voxel : voxels_of(in, int64_t{1} << 40)) {
    for (int64_t ci = 0; ci < in[1]; ++ci) {
      auto from = voxel;
      from[3] -= 1;
      shifted.x[element_at(in, voxel, ci)] = voxel[3] == 0 ? 0 : c.x[element_at(in, from, ci)];
    }
  }
  for_each_target(c, [&](const Target& target) {
    const auto one = values(target, c);
    const auto two = values(target, shifted);
    for (const auto& voxel : voxels_of(out, int64_t{1} << 40)) {
      if (voxel[3] + 2 >= out[4]) continue;
      auto moved = voxel;
      moved[3] += 2;
      for (int64_t co = 0; co < out[1]; ++co) {
        ASSERT_EQ(one[element_at(out, voxel, co)], two[element_at(out, moved, co)]);
      }
    }
  });
}

constexpr const char* kBitShapes[] = {
    "A n5 ci3 co16 i4x9x17 k3 s2 p1 fp32",        "B n5 ci32 co64 i3x4x16 k3 s2 p1 op1 fp32",
    "C n5 ci32 co64 i3x9x16 k3 s2 p1 op1 fp32",   "B n3 ci8 co20 i3x4x7 k3 s2 p1 fp16 io=fp16",
    "C n5 ci6 co10 i3x4x8 k3 s3 p1 bf16 io=bf16", "I n3 ci32 co16 i8x16x10 k4 s2 p1 fp32",
    "A n5 ci3 co16 i4x5x9 k3 s2 p1 fp32 io=fp16", "I n3 ci4 co10 i4x30x70 k3 p1 fp32",
};

TEST(Laws, SameBitsAgainAndFromMisalignedMemory) {
  for (const char* text : kBitShapes) {
    Case c = random_case(problem_of(text), DataSet::kZeroMean, 21, 3.0);
    const size_t element = element_size(c.problem.io);
    for_each_target(c, [&](const Target& target) {
      const auto once = run_case(target, c);
      EXPECT_EQ(once, run_case(target, c)) << "a second run";
      EXPECT_EQ(once, run_case(target, c, {.x_offset = element})) << "input off by one element";
      EXPECT_EQ(once, run_case(target, c, {.out_offset = element})) << "output off by one element";
      EXPECT_EQ(once, run_case(target, c, {.x_offset = 3 * element, .out_offset = 5 * element}))
          << "input off by three elements, output by five";
      EXPECT_EQ(once, run_case(target, c, {.last_level_cache_bytes = 1})) << "streaming stores";
    });
  }
}

TEST(Laws, SameBitsWhateverTheThreads) {
  for (const char* text : kBitShapes) {
    Case c = random_case(problem_of(text), DataSet::kZeroMean, 24, 3.0);
    for_each_target(c, [&](const Target& target) {
      const auto wanted = run_case(target, c, {.threads = 1});
      for (const int threads : {2, 3, 7, 64}) {
        EXPECT_EQ(wanted, run_case(target, c, {.threads = threads})) << threads << " threads";
      }
    });
  }
}

TEST(Laws, SameBitsWhateverTheBatch) {
  for (const char* text : kBitShapes) {
    Case c = random_case(problem_of(text), DataSet::kZeroMean, 22, 3.0);
    const auto batch = static_cast<size_t>(c.problem.input[0]);
    const auto part = [&](const auto& all, size_t n) {
      const size_t size = all.size() / batch;
      using Vector = std::decay_t<decltype(all)>;
      return Vector(all.begin() + static_cast<ptrdiff_t>(n * size),
                    all.begin() + static_cast<ptrdiff_t>((n + 1) * size));
    };
    Case reversed = c;
    reversed.x.clear();
    reversed.add.clear();
    for (size_t n = batch; n-- > 0;) {
      for (auto [from, to] : {std::pair{&c.x, &reversed.x}, std::pair{&c.add, &reversed.add}}) {
        const auto piece = part(*from, n);
        to->insert(to->end(), piece.begin(), piece.end());
      }
    }
    for_each_target(c, [&](const Target& target) {
      const auto whole = run_case(target, c);
      const auto backwards = run_case(target, reversed);
      for (size_t n = 0; n < batch; ++n) {
        EXPECT_EQ(part(whole, n), part(backwards, batch - 1 - n)) << "sample " << n;
      }
      Case single = c;
      Shape5 one = c.problem.input;
      one[0] = 1;
      single.problem = *make_problem(c.problem.geometry, c.problem.epilogue, one,
                                     c.problem.precision, c.problem.io);
      single.x = part(c.x, 2);
      single.add = part(c.add, 2);
      EXPECT_EQ(run_case(target, single), part(whole, 2)) << "alone";
    });
  }
}

// A task may take exponentials as they are where its input allows, and must be right where it does
// not, but no voxel's bits may tell what its neighbours hold.
TEST(Laws, SameBitsWhateverTheNeighboursHold) {
  for (const char* text :
       {"B n3 ci32 co64 i4x12x16 k3 s2 p1 op1 fp32", "B n3 ci20 co50 i3x9x15 k5x3x4 s2x1x2 p1 fp32",
        "B n3 ci32 co64 i3x9x15 k3 s2 p1 fp16 io=fp16", "A n3 ci3 co16 i8x16x17 k3 s2 p1 fp32",
        "A n3 ci5 co10 i4x9x16 k4x2x3 s2x1x3 p1 bf16 io=bf16"}) {
    LoudCase c = loud_case(problem_of(text), 53, 0.5);
    const double chain = chain_maximum(c.loud);
    for_each_target(c.quiet, [&](const Target& target) {
      const auto loud = values(target, c.loud);
      EXPECT_EQ(c.differences(values(target, c.quiet), loud), 0);
      const auto report = check_outputs(c.loud, loud, chain);
      EXPECT_TRUE(report.ok()) << report.text;
    });
  }
}

// A workspace limit changes the cutting, never a bit; below the smallest piece there are words.
TEST(Laws, SameBitsUnderAWorkspaceLimit) {
  for (const char* text : kBitShapes) {
    Case c = random_case(problem_of(text), DataSet::kZeroMean, 25, 3.0);
    for_each_target(c, [&](const Target& target) {
      const auto wanted = run_case(target, c);
      const auto needed = [&](size_t limit) {
        return target.kernel->workspace_bytes(c.problem, target.properties(), limit);
      };
      size_t bytes = *needed(kNoLimit);
      while (true) {
        const auto less = needed(bytes - 1);
        if (!less.ok()) {
          EXPECT_EQ(less.status().code(), VOLUP_STATUS_OUT_OF_MEMORY);
          EXPECT_NE(less.status().text().find(cat(bytes)), std::string::npos)
              << less.status().text();
          break;
        }
        ASSERT_LT(*less, bytes);
        bytes = *less;
        EXPECT_EQ(wanted, run_case(target, c, {.limit = bytes})) << bytes << " bytes";
      }
    });
  }
}

}  // namespace
}  // namespace volup::test
