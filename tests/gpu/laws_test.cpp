// SPDX-License-Identifier: Apache-2.0
//
// Laws of a transposed convolution that need no oracle, on the identity epilogue with integers so
// that they hold exactly; and the promise of the same bits.
#include "gpu_test.h"
#include "loud_case.h"

namespace volup::test {
namespace {

class Laws : public GpuTest {
 protected:
  // Runs work(kernel) for each kernel that takes the case.
  static void for_each_kernel(Case& c, const std::function<void(const Kernel&)>& work) {
    ASSERT_NE(c.model(), nullptr);
    const auto kernels = kernels_for(c.problem);
    ASSERT_FALSE(kernels.empty()) << c.name;
    for (const Kernel* kernel : kernels) {
      VOLUP_TRACE(*kernel, c);
      work(*kernel);
    }
  }

  static std::vector<float> values(const Kernel& kernel, Case& c) {
    const auto out = run_case(kernel, c);
    return out ? values_of(c.problem.io, *out) : std::vector<float>();
  }
};

constexpr const char* kShapes[] = {
    "n2 ci32 co64 i3x4x8 k3 s2 p1 op1 fp32",
    "n2 ci3 co16 i4x5x6 k3 s2 p1 fp32",
    "n1 ci6 co10 i3x4x5 k4x3x5 s3x2x1 p1x0x2 d1x2x1 g2 fp32",
};

int64_t count_differences(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  EXPECT_EQ(a.size(), b.size());
  int64_t count = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) count += a[i] != b[i];
  return count;
}

// cuDNN promises the same bits for the same call alone.
bool keeps_bits_across_batches(const Kernel& kernel) { return kernel.name() != "cuda/cudnn"; }

// The part of something that is sample n's, of a batch.
template <typename Vector>
Vector sample_part(const Vector& all, size_t n, int64_t batch) {
  const auto size = static_cast<ptrdiff_t>(all.size()) / batch;
  const auto begin = all.begin() + static_cast<ptrdiff_t>(n) * size;
  return Vector(begin, begin + size);
}
// Sample n alone.
Case sample_alone(const Case& c, size_t n) {
  Case alone = c;
  Shape5 one = c.problem.input;
  one[0] = 1;
  alone.problem =
      *make_problem(c.problem.geometry, c.problem.epilogue, one, c.problem.precision, c.problem.io);
  alone.problem.weights = c.problem.weights;
  alone.x = sample_part(c.x, n, c.problem.input[0]);
  alone.add = sample_part(c.add, n, c.problem.input[0]);
  return alone;
}

TEST_F(Laws, ImpulseGivesTheKernel) {
  for (const char* shape : kShapes) {
    Case c = integer_case(problem_of(cat("I ", shape)), 3);
    const ConvTranspose3d& g = c.problem.geometry;
    const Shape5& in = c.problem.input;
    const Shape5& out = c.problem.output;
    std::fill(c.x.begin(), c.x.end(), 0.0f);
    std::fill(c.bias.begin(), c.bias.end(), 0.0f);
    const std::array<int64_t, 4> at = {in[0] - 1, in[2] / 2, in[3] / 2, in[4] / 2};
    const int64_t ci = in[1] - 1;
    c.x[element_at(in, at, ci)] = 1.0f;
    for_each_kernel(c, [&](const Kernel& kernel) {
      auto got = values(kernel, c);
      if (got.empty()) return;
      const int64_t first = ci / g.in_per_group() * g.out_per_group();
      for (int64_t tap = 0; tap < g.taps(); ++tap) {
        const auto voxel = target_of(c.problem, at, tap);
        if (!voxel) continue;
        for (int64_t co = 0; co < g.out_per_group(); ++co) {
          float& value = got[element_at(out, *voxel, first + co)];
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

TEST_F(Laws, LinearInInputAndWeights) {
  for (const char* shape : kShapes) {
    Case a = integer_case(problem_of(cat("I ", shape)), 5);
    std::fill(a.bias.begin(), a.bias.end(), 0.0f);
    Case b = integer_case(a.problem, 6);
    for_each_kernel(a, [&](const Kernel& kernel) {
      for (const bool in_weights : {false, true}) {
        Case other = a;
        Case sum = a;
        auto& part = in_weights ? other.weight : other.x;
        auto& whole = in_weights ? sum.weight : sum.x;
        part = in_weights ? b.weight : b.x;
        for (size_t i = 0; i < whole.size(); ++i) whole[i] += part[i];
        const auto one = values(kernel, a);
        const auto two = values(kernel, other);
        const auto both = values(kernel, sum);
        if (one.empty()) return;
        for (size_t i = 0; i < one.size(); ++i) ASSERT_EQ(one[i] + two[i], both[i]) << i;
      }
    });
  }
}

// <convT x, y> = <x, conv y>: the right side by the definition of a convolution on the host.
TEST_F(Laws, AdjointOfTheConvolution) {
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
    const auto voxels = voxels_of(in, int64_t{1} << 40);
    for (const auto& voxel : voxels) {
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
    for_each_kernel(c, [&](const Kernel& kernel) {
      const auto got = values(kernel, c);
      if (got.empty()) return;
      double left = 0;
      for (size_t i = 0; i < got.size(); ++i) left += double{got[i]} * double{y[i]};
      EXPECT_EQ(left, right);
    });
  }
}

TEST_F(Laws, InputShiftMovesTheOutputByTheStride) {
  Case c = integer_case(problem_of("I n1 ci32 co64 i5x6x9 k3 s2 p1 op1 fp32"), 10);
  const Shape5& in = c.problem.input;
  const Shape5& out = c.problem.output;
  // A margin of zeros keeps the edges out of it.
  Case shifted = c;
  for (const auto& voxel : voxels_of(in, int64_t{1} << 40)) {
    for (int64_t ci = 0; ci < in[1]; ++ci) {
      const bool margin = voxel[3] == 0 || voxel[3] >= in[4] - 2;
      if (margin) c.x[element_at(in, voxel, ci)] = 0;
    }
  }
  for (const auto& voxel : voxels_of(in, int64_t{1} << 40)) {
    for (int64_t ci = 0; ci < in[1]; ++ci) {
      auto from = voxel;
      from[3] -= 1;
      shifted.x[element_at(in, voxel, ci)] = voxel[3] == 0 ? 0 : c.x[element_at(in, from, ci)];
    }
  }
  for_each_kernel(c, [&](const Kernel& kernel) {
    const auto one = values(kernel, c);
    const auto two = values(kernel, shifted);
    if (one.empty()) return;
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
    "A n5 ci3 co16 i4x5x9 k3 s2 p1 fp32",
    "B n5 ci32 co64 i3x4x8 k3 s2 p1 op1 fp32",
    "C n5 ci32 co64 i3x4x8 k3 s2 p1 op1 fp32",
    "C n5 ci32 co64 i3x4x8 k3 s2 p1 op1 tf32",
    "B n5 ci32 co64 i3x4x8 k3 s2 p1 op1 tf32",
    "B n5 ci32 co64 i3x4x7 k3 s2 p1 fp16 io=fp16",
    "C n5 ci32 co64 i3x4x8 k3 s2 p1 bf16 io=bf16",
    "I n3 ci32 co16 i32x32x10 k4 s2 p1 fp32",
    "B n5 ci32 co64 i3x4x24 k3 s2 p1 op1 tf32",
    "C n5 ci32 co64 i3x4x24 k3 s2 p1 op1 tf32",
    "B n5 ci32 co64 i3x9x16 k3 s2 p1 op1 fp16 io=fp16",
    "C n5 ci32 co64 i3x9x16 k3 s2 p1 op1 bf16 io=bf16",
    "A n5 ci3 co16 i4x5x9 k3 s2 p1 fp16 io=fp16",
    "A n5 ci3 co16 i4x5x9 k3 s2 p1 tf32",
};

TEST_F(Laws, SameBitsAgainAndFromMisalignedMemory) {
  for (const char* text : kBitShapes) {
    Case c = random_case(problem_of(text), DataSet::kZeroMean, 21, 3.0);
    const size_t element = element_size(c.problem.io);
    for_each_kernel(c, [&](const Kernel& kernel) {
      const auto once = run_case(kernel, c);
      if (!once) return;
      EXPECT_EQ(once, run_case(kernel, c)) << "a second run";
      EXPECT_EQ(once, run_case(kernel, c, {.x_offset = element})) << "input off by one element";
      EXPECT_EQ(once, run_case(kernel, c, {.out_offset = element})) << "output off by one element";
      EXPECT_EQ(once, run_case(kernel, c, {.out_offset = 2 * element})) << "output off by a pair";
      EXPECT_EQ(once, run_case(kernel, c, {.x_offset = 3 * element, .out_offset = 3 * element}))
          << "both off by three elements";
    });
  }
}

TEST_F(Laws, SameBitsWhateverTheBatch) {
  for (const char* text : kBitShapes) {
    Case c = random_case(problem_of(text), DataSet::kZeroMean, 22, 3.0);
    const auto batch = static_cast<size_t>(c.problem.input[0]);
    const auto part = [&](const auto& all, size_t n) {
      return sample_part(all, n, c.problem.input[0]);
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
    for_each_kernel(c, [&](const Kernel& kernel) {
      if (!keeps_bits_across_batches(kernel)) return;
      const auto whole = run_case(kernel, c);
      const auto backwards = run_case(kernel, reversed);
      if (!whole || !backwards) return;
      for (size_t n = 0; n < batch; ++n) {
        EXPECT_EQ(part(*whole, n), part(*backwards, batch - 1 - n)) << "sample " << n;
      }
      Case single = sample_alone(c, 2);
      if (kernel.refuse(single.problem, properties())) return;
      EXPECT_EQ(run_case(kernel, single), part(*whole, 2)) << "alone";
    });
  }
}

// Kernels of one family cut an output in tiles of their own and hand operands on by barriers of
// their own: with several tiles a warpgroup, and what is read of a slot too late or too early in
// other bits.
TEST_F(Laws, SameBitsWhateverTheTile) {
  int compared = 0;
  for (const char* shape :
       {"B n64 ci32 co64 i4x16x16 k3 s2 p1 op1", "C n64 ci32 co64 i4x16x16 k3 s2 p1 op1",
        "C n16 ci32 co64 i16x16x16 k3 s2 p1 op1", "C n7 ci20 co72 i9x12x24 k4x2x4 s2 p1x0x1",
        "I n24 ci64 co40 i6x16x16 k3 s2 p1 op1"}) {
    for (const char* format : {"fp32", "tf32", "bf16", "fp16 io=fp16", "bf16 io=bf16"}) {
      Case c = random_case(problem_of(cat(shape, " ", format)), DataSet::kZeroMean, 51, 2.0);
      std::optional<std::vector<std::byte>> narrow, wide;
      for_each_kernel(c, [&](const Kernel& kernel) {
        if (kernel.name() == "cuda/sm90") narrow = run_case(kernel, c);
        if (kernel.name() == "cuda/sm90-wide") wide = run_case(kernel, c);
      });
      if (!narrow || !wide) continue;
      EXPECT_EQ(count_differences(*narrow, *wide), 0) << c.name;
      ++compared;
    }
  }
  if (properties().compute_capability == 90) {
    EXPECT_GE(compared, 20);
  }
}

// A kernel may choose by a sample's numbers how it computes that sample, and no other: samples of
// wide range, of few numbers, of none and with a NaN, among others and alone.
TEST_F(Laws, SameBitsWhateverTheOtherSamplesHold) {
  for (const char* text :
       {"B n7 ci32 co64 i3x9x16 k3 s2 p1 op1 fp32", "C n7 ci32 co64 i4x16x16 k3 s2 p1 op1 fp32",
        "C n7 ci20 co72 i5x6x15 k4x2x4 s2 p1x0x1 fp32", "I n7 ci64 co40 i6x16x16 k3 s2 p1 op1 tf32",
        "A n7 ci3 co16 i4x5x9 k3 s2 p1 fp32"}) {
    Case c = random_case(problem_of(text), DataSet::kZeroMean, 52, 2.0);
    const auto batch = static_cast<size_t>(c.problem.input[0]);
    const size_t sample = c.x.size() / batch;
    c.x[1 * sample + sample / 2] = 0x1p-40f;
    std::fill_n(&c.x[3 * sample + sample / 50], sample - sample / 50, 0.0f);
    std::fill_n(&c.x[4 * sample], sample, 0.0f);
    c.x[5 * sample + sample / 3] = NAN;
    c.x[6 * sample + sample / 3] = 0x1p70f;
    for_each_kernel(c, [&](const Kernel& kernel) {
      if (!keeps_bits_across_batches(kernel)) return;
      const auto together = run_case(kernel, c);
      if (!together) return;
      for (size_t n = 0; n < batch; ++n) {
        Case alone = sample_alone(c, n);
        if (kernel.refuse(alone.problem, properties())) return;
        const auto got = run_case(kernel, alone);
        ASSERT_TRUE(got);
        EXPECT_EQ(count_differences(sample_part(*together, n, c.problem.input[0]), *got), 0)
            << "sample " << n;
      }
      // With a workspace that has no room for all samples at a time.
      const size_t whole = Prepared(kernel, c).workspace_bytes();
      if (whole == 0) return;
      const auto in_pieces = run_case(kernel, c, {.limit = whole - 1});
      ASSERT_TRUE(in_pieces);
      EXPECT_EQ(count_differences(*together, *in_pieces), 0) << "in pieces";
    });
  }
}

// A kernel may take a softmax's exponentials as they are where logits allow, and must be right
// where they do not, but within a sample whose range decides nothing no voxel's bits may tell what
// its neighbours hold. The first shape has several tiles a warpgroup.
TEST_F(Laws, SameBitsOfASoftmaxWhateverItsNeighboursHold) {
  for (const char* shape :
       {"B n24 ci32 co64 i4x16x32 k3 s2 p1 op1", "B n9 ci20 co50 i3x9x15 k3 s2 p1",
        "B n12 ci32 co64 i6x24x16 k5x3x4 s2x1x2 p1"}) {
    for (const char* format : {"fp32", "tf32", "bf16", "fp16 io=fp16", "bf16 io=bf16"}) {
      LoudCase c = loud_case(problem_of(cat(shape, " ", format)), 53, 2.0);
      constexpr int64_t kVoxels = 3000;
      const double chain = chain_maximum(c.loud, kVoxels);
      for_each_kernel(c.quiet, [&](const Kernel& kernel) {
        const auto quiet = values(kernel, c.quiet);
        const auto loud = values(kernel, c.loud);
        if (quiet.empty() || loud.empty()) return;
        const auto report = check_outputs(c.loud, loud, chain, kVoxels);
        EXPECT_TRUE(report.ok()) << report.text;
        if (keeps_bits_across_batches(kernel)) {
          EXPECT_EQ(c.differences(quiet, loud), 0);
        }
      });
    }
  }
}

TEST_F(Laws, TwoStreamsAndAnotherShapeDoNotDisturb) {
  for (const char* text : kBitShapes) {
    Case c = random_case(problem_of(text), DataSet::kZeroMean, 23, 3.0);
    Case other = random_case(c.problem, DataSet::kPositive, 24, 1.0);
    for_each_kernel(c, [&](const Kernel& kernel) {
      const auto wanted = run_case(kernel, c);
      if (!wanted) return;
      // A kernel's workspace belongs to one stream, so each stream has a launch of its own.
      const Prepared first(kernel, c);
      const Prepared second(kernel, other);
      ASSERT_TRUE(first.ok() && second.ok());
      const DType io = c.problem.io;
      const Memory x1(bytes_of(io, c.x));
      const Memory x2(bytes_of(io, other.x));
      const Memory add1(bytes_of(io, c.add));
      const Memory add2(bytes_of(io, other.add));
      const Memory out1(wanted->size());
      const Memory out2(wanted->size());
      cudaStream_t streams[2];
      for (cudaStream_t& stream : streams) {
        ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
      }
      const bool adds = !c.add.empty();
      for (int round = 0; round < 10; ++round) {
        ASSERT_TRUE(
            first.run(x1.data(), adds ? add1.data() : nullptr, out1.data(), streams[0]).ok());
        ASSERT_TRUE(
            second.run(x2.data(), adds ? add2.data() : nullptr, out2.data(), streams[1]).ok());
      }
      ASSERT_TRUE(device().synchronize().ok());
      for (cudaStream_t stream : streams) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
      EXPECT_EQ(out1.read(), *wanted);
    });
  }
}

}  // namespace
}  // namespace volup::test
