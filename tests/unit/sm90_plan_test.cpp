// SPDX-License-Identifier: Apache-2.0
//
// Plans of "cuda/sm90" and "cuda/sm90-wide" for an H200, without one: what lies where in shared
// memory, and that the two share their packed weights.
#include "cuda/sm90_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "model.h"

namespace volup::sm90 {
namespace {

DeviceProperties h200() {
  DeviceProperties p;
  p.type = DeviceType::kCuda;
  p.compute_capability = 90;
  p.multiprocessors = 132;
  p.shared_memory_bytes = 227 * 1024;
  return p;
}

constexpr const char* kShapes[] = {
    "B n16 ci32 co64 i16x32x32 k3 s2 p1 op1",
    "C n128 ci32 co64 i16x16x16 k3 s2 p1 op1",
    "C n2 ci64 co72 i4x9x40 k3 s2 p1 op1",
    "I n2 ci64 co128 i4x16x24 k4 s2 p1",
    "I n2 ci8 co8 i4x16x24 k2 s2",
    "C n2 ci32 co64 i5x6x16 k5x3x4 s3x1x2 p2x1x1",
    "I n2 ci16 co16 i4x9x16 k5 s2 p2 op1 d2",
};
constexpr const char* kFormats[] = {"fp32", "tf32", "bf16", "fp16 io=fp16", "bf16 io=bf16"};

template <typename Body>
void for_each_problem(const Body& body) {
  for (const char* shape : kShapes) {
    for (const char* format : kFormats) {
      const std::string text = std::string(shape) + " " + format;
      SCOPED_TRACE(text);
      const auto problem = parse_problem(text);
      ASSERT_TRUE(problem.ok()) << problem.status().text();
      body(*problem);
    }
  }
}

// Weights, raw x, stages and slots for add follow each other and end where shared memory does.
void check_layout(const Plan& plan, const DeviceProperties& device) {
  const auto end = static_cast<int64_t>(device.shared_memory_bytes - kSharedHeader);
  const int bulk_slots = plan.squares == 1 ? kMaxBulkSlots - 2 : kMaxBulkSlots;
  for (const Class& c : plan.classes) {
    if (c.resident) {
      EXPECT_GE(c.raw_at, c.weight_bytes);
      // One plane more than a tile's window.
      EXPECT_GT(c.stages, c.window * plan.chunks);
    }
    EXPECT_GE(c.raw_slots, 2);
    EXPECT_LE(c.raw_slots, plan.bulk ? bulk_slots : kMaxRawSlots);
    EXPECT_EQ(c.stages_at, c.raw_at + c.raw_slots * c.raw_slot_bytes);
    EXPECT_LE(c.stages, kMaxStages);
    const int64_t stages_end = c.stages_at + int64_t{c.stages} * c.slab_bytes;
    EXPECT_LE(stages_end, end);
    EXPECT_EQ(plan.add_slots, c.add_slots > 0);
    if (c.add_slots > 0) {
      EXPECT_GE(c.add_slots, 2);
      EXPECT_LE(c.add_slots, kMaxAddSlots);
      EXPECT_GE(c.add_at, stages_end);
      EXPECT_EQ(c.add_at % 1024, 0);
      EXPECT_LE(c.add_at + int64_t{c.add_slots} * kAddSlotBytes, end);
    }
    if (plan.out_boxes) {
      EXPECT_GE(c.out_at, stages_end);
      EXPECT_EQ(c.out_at % 128, 0);
      // One for each of 16 warps.
      EXPECT_LE(c.out_at + int64_t{16} * out_box_bytes(plan.channels, plan.element), end);
    }
    // A box of x has room in its slot, in rows and channels.
    if (plan.bulk) {
      EXPECT_GE(c.raw_slot_bytes,
                box_channels(plan.squares, plan.element) * plan.box_y * plan.box_x * plan.element);
      EXPECT_GE(plan.box_x, c.slab_x);
      EXPECT_GE(plan.box_y, c.slab_y);
      EXPECT_LE(c.quads_of_row * 4, plan.box_x + 3);
    }
  }
}

TEST(Sm90Plan, SharedMemoryHoldsEveryClass) {
  int wide = 0;
  for_each_problem([&](const Problem& problem) {
    const DeviceProperties device = h200();
    if (!refuse(problem, device))
      check_layout(make_plan(problem, engine_of(problem, device), 1, device), device);
    if (refuse_wide(problem, device)) return;
    ++wide;
    check_layout(make_plan(problem, engine_of(problem, device), 2, device), device);
  });
  EXPECT_GE(wide, 10);
}

// 16-bit outputs that nothing is added to, of whole 16 bytes a row, where that costs no class.
TEST(Sm90Plan, OutputsLeaveInBoxesWhereTheyMay) {
  const auto boxed = [](const char* text) {
    const Problem problem = *parse_problem(text);
    EXPECT_FALSE(refuse_wide(problem, h200())) << text;
    return make_plan(problem, engine_of(problem, h200()), 2, h200()).out_boxes;
  };
  EXPECT_TRUE(boxed("B n1 ci32 co64 i4x8x32 k3 s2 p1 op1 fp16 io=fp16"));
  EXPECT_TRUE(boxed("I n1 ci32 co100 i4x8x32 k3 s2 p1 op1 bf16 io=bf16"));
  EXPECT_FALSE(boxed("C n1 ci32 co64 i4x8x32 k3 s2 p1 op1 fp16 io=fp16"));
  EXPECT_FALSE(boxed("B n1 ci32 co64 i4x8x32 k3 s2 p1 op1 fp32"));
  EXPECT_FALSE(boxed("B n1 ci32 co64 i4x8x32 k3 s2 p1 op1 tf32"));
  // Boxes would cost a class, and shared memory has no room.
  EXPECT_FALSE(boxed("B n1 ci32 co64 i4x8x32 k4 s2 p1 fp16 io=fp16"));
  EXPECT_FALSE(boxed("B n1 ci64 co64 i4x8x32 k3 s2 p1 op1 fp16 io=fp16"));
}

TEST(Sm90Plan, BothWidthsReadTheSamePackedWeights) {
  int compared = 0;
  for_each_problem([&](const Problem& problem) {
    const DeviceProperties device = h200();
    if (refuse_wide(problem, device)) return;
    const ConvTranspose3d& g = problem.geometry;
    std::mt19937 random(7);
    std::uniform_real_distribution<float> value(-1, 1);
    const auto array = [&](int64_t count) {
      std::shared_ptr<float[]> values(new float[static_cast<size_t>(count)]);
      std::generate_n(values.get(), count, [&] { return value(random); });
      return values;
    };
    const int64_t weights = g.weight_count();
    const auto model = Model::create(g, problem.epilogue, array(weights), weights,
                                     array(g.out_channels), g.out_channels, ModelSource{});
    ASSERT_TRUE(model.ok()) << model.status().text();
    const auto narrow = pack(make_plan(problem, engine_of(problem, device), 1, device), **model);
    const auto wide = pack(make_plan(problem, engine_of(problem, device), 2, device), **model);
    ASSERT_TRUE(narrow.ok() && wide.ok());
    EXPECT_TRUE(*narrow == *wide);
    ++compared;
  });
  EXPECT_GE(compared, 10);
}

TEST(Sm90Plan, PiecesCoverASampleAndNoneIsEmpty) {
  Problem problem = *parse_problem("C n2 ci8 co8 i1x1x1 k3 s2 p1 op1 fp32");
  for (const int64_t edge : {1, 2, 10, 11, 31, 32, 33, 100, 513}) {
    problem.input = {2, 8, edge, edge, edge + 3};
    const int64_t sample = 8 * edge * edge * (edge + 3);
    const int64_t pieces = pieces_of(problem);
    const int64_t length = piece_length(sample, pieces);
    SCOPED_TRACE(edge);
    EXPECT_GE(pieces, 1);
    EXPECT_LE(pieces, kMaxPieces);
    EXPECT_EQ(length % 4, 0);
    EXPECT_GE(pieces * length, sample);
    EXPECT_LT((pieces - 1) * length, sample);
    // Which engine takes a sample must not depend on the batch.
    problem.input[0] = 1000;
    EXPECT_EQ(pieces_of(problem), pieces);
  }
}

TEST(Sm90Plan, WideSaysWhyItRefuses) {
  const auto why = [](const char* text) {
    const auto refusal = refuse_wide(*parse_problem(text), h200());
    return refusal ? *refusal : std::string("takes it");
  };
  EXPECT_EQ(why("B n16 ci32 co64 i16x32x32 k3 s2 p1 op1 tf32"), "takes it");
  EXPECT_EQ(why("B n16 ci32 co64 i16x32x32 k3 s2 p1 op1 fp32"), "takes it");
  EXPECT_EQ(why("B n16 ci7 co64 i16x32x32 k3 s2 p1 op1 fp32"),
            "needs 8 input channels or more for fp32 products, got 7");
  EXPECT_EQ(why("I n1 ci96 co64 i4x16x32 k5 s2 p2 op1 fp32"),
            "needs weights that stay in shared memory for fp32 products");
  Problem wide_weights = *parse_problem("B n16 ci32 co64 i16x32x32 k3 s2 p1 op1 fp32");
  wide_weights.weights.exponent_span = kExponentSpan;
  EXPECT_FALSE(refuse_wide(wide_weights, h200()));
  wide_weights.weights.exponent_span = kExponentSpan + 1;
  EXPECT_EQ(*refuse_wide(wide_weights, h200()),
            "needs weights within 2^27 of the greatest for fp32 products, got 2^28");
  EXPECT_FALSE(refuse(wide_weights, h200()));
  EXPECT_EQ(engine_of(wide_weights, h200()), kUnscaledEngine);
  EXPECT_EQ(why("B n16 ci32 co64 i16x32x32 k3 s2 p1 tf32"),
            "needs an even output width over 16, got 63");
  EXPECT_EQ(why("B n16 ci32 co64 i16x32x30 k3 s2 p1 op1 tf32"),
            "needs input rows of whole 16 bytes, got width 30");
  EXPECT_EQ(why("I n1 ci32 co64 i4x16x32 k3 p1 tf32"), "needs stride 2 along W, got 1");
}

}  // namespace
}  // namespace volup::sm90
