// SPDX-License-Identifier: Apache-2.0
//
// What a session promises besides right numbers: allocators, workspace, bounded cache, one thread
// at a time, same bits for a batch and its parts.
#include "session.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <thread>

namespace volup {
namespace {

std::shared_ptr<const Model> make_model(EpilogueKind kind, int64_t cin = 3, int64_t cout = 5) {
  ConvTranspose3d g;
  g.in_channels = cin;
  g.out_channels = cout;
  g.kernel = {3, 3, 3};
  g.stride = {2, 2, 2};
  g.padding_begin = g.padding_end = {1, 1, 1};
  g.output_padding = {1, 1, 1};
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto fill = [&](int64_t count) {
    std::shared_ptr<float[]> values(new float[count]);
    for (int64_t i = 0; i < count; ++i) values[i] = uniform(random);
    return values;
  };
  auto model = Model::create(g, default_epilogue(kind), fill(g.weight_count()), g.weight_count(),
                             fill(cout), cout, ModelSource{});
  EXPECT_TRUE(model.ok());
  return *model;
}

volup_tensor view(float* data, const Shape5& shape) {
  volup_tensor tensor = {};
  tensor.struct_size = sizeof(tensor);
  tensor.data = data;
  tensor.device_type = VOLUP_DEVICE_CPU;
  tensor.rank = 5;
  std::copy(shape.begin(), shape.end(), tensor.shape);
  return tensor;
}

// Ramp in, NaN-poisoned memory out.
std::vector<float> run(Session& session, const Shape5& input, const Shape5& output,
                       int64_t first_sample = 0) {
  const int64_t sample = input[1] * input[2] * input[3] * input[4];
  std::vector<float> x(input[0] * sample);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>((first_sample * sample + static_cast<int64_t>(i)) % 17 - 8) / 7;
  }
  std::vector<float> out(output[0] * output[1] * output[2] * output[3] * output[4],
                         std::numeric_limits<float>::quiet_NaN());
  const volup_tensor x_view = view(x.data(), input);
  const volup_tensor out_view = view(out.data(), output);
  const Status status = session.run({&x_view, nullptr, &out_view});
  EXPECT_TRUE(status.ok()) << status.text();
  return out;
}

SessionOptions cpu() {
  SessionOptions options;
  options.device = DeviceType::kCpu;
  options.threads = 2;
  return options;
}

TEST(Session, BatchPartsHaveTheBitsOfTheWhole) {
  const auto model = make_model(EpilogueKind::kSoftmaxSigmoid);
  auto session = Session::create(model, cpu());
  ASSERT_TRUE(session.ok());
  const auto whole = run(**session, {5, 3, 3, 4, 5}, {5, 5, 6, 8, 10});
  for (int64_t n = 0; n < 5; ++n) {
    const auto part = run(**session, {1, 3, 3, 4, 5}, {1, 5, 6, 8, 10}, n);
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + n * part.size(), part.size() * 4), 0) << n;
  }
}

struct CountingAllocator {
  std::map<void*, size_t> live;
  size_t total = 0;
  static void* allocate(void* context, size_t bytes) {
    auto& self = *static_cast<CountingAllocator*>(context);
    void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    self.live[memory] = bytes;
    self.total += bytes;
    return memory;
  }
  static void release(void* context, void* memory, size_t bytes) {
    auto& self = *static_cast<CountingAllocator*>(context);
    EXPECT_EQ(self.live[memory], bytes);
    self.live.erase(memory);
    std::free(memory);
  }
};

TEST(Session, AllThatItKeepsComesFromTheCallersAllocatorAndGoesBack) {
  CountingAllocator allocator;
  SessionOptions options = cpu();
  options.allocator = {CountingAllocator::allocate, CountingAllocator::release, &allocator};
  {
    auto session = Session::create(make_model(EpilogueKind::kIdentity), options);
    ASSERT_TRUE(session.ok());
    run(**session, {1, 3, 3, 4, 5}, {1, 5, 6, 8, 10});
    EXPECT_GT(allocator.total, 0u);
    const size_t before = allocator.total;
    run(**session, {1, 3, 3, 4, 5}, {1, 5, 6, 8, 10});
    EXPECT_EQ(allocator.total, before) << "a known shape allocates nothing";
    ASSERT_TRUE((*session)->time({1, 3, 3, 4, 5}, 2).ok());
  }
  EXPECT_TRUE(allocator.live.empty());
}

TEST(Session, AFailingAllocatorIsAStatusAndTheSessionLivesOn) {
  static bool fail;
  fail = true;
  SessionOptions options = cpu();
  options.allocator.allocate = [](void*, size_t bytes) -> void* {
    return fail ? nullptr : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  };
  options.allocator.free = [](void*, void* memory, size_t) { std::free(memory); };
  auto session = Session::create(make_model(EpilogueKind::kIdentity), options);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ((*session)->prepare({1, 3, 2, 2, 2}).code(), VOLUP_STATUS_OUT_OF_MEMORY);
  fail = false;
  EXPECT_TRUE((*session)->prepare({1, 3, 2, 2, 2}).ok());
}

TEST(Session, CallersWorkspaceIsUsedAndTheSizeQueryIsExact) {
  auto session = Session::create(make_model(EpilogueKind::kSoftmaxSigmoid), cpu());
  ASSERT_TRUE(session.ok());
  const auto bytes = (*session)->workspace_size({2, 3, 3, 4, 5});
  ASSERT_TRUE(bytes.ok()) << bytes.status().text();
  const auto expected = run(**session, {2, 3, 3, 4, 5}, {2, 5, 6, 8, 10});
  if (*bytes == 0) return;
  // One page of canaries behind exactly what was asked for.
  constexpr size_t kCanary = 4096;
  const size_t padded = (*bytes + 255) / 256 * 256 + kCanary;
  std::unique_ptr<unsigned char, void (*)(void*)> memory(
      static_cast<unsigned char*>(std::aligned_alloc(256, padded)), std::free);
  std::fill(memory.get(), memory.get() + padded, 0xff);
  ASSERT_TRUE((*session)->set_workspace(memory.get(), *bytes).ok());
  EXPECT_EQ(run(**session, {2, 3, 3, 4, 5}, {2, 5, 6, 8, 10}), expected);
  for (size_t i = *bytes; i < padded; ++i) ASSERT_EQ(memory.get()[i], 0xff) << "byte " << i;
}

TEST(Session, ForgetsTheLeastRecentlyUsedShape) {
  auto session = Session::create(make_model(EpilogueKind::kIdentity), cpu());
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->prepare({1, 3, 2, 2, 2}).ok());
  for (int64_t n = 2; n < 200; ++n) ASSERT_TRUE((*session)->prepare({n, 3, 1, 1, 1}).ok());
  std::vector<float> x(24), out(5 * 64);
  const volup_tensor x_view = view(x.data(), {1, 3, 2, 2, 2});
  const volup_tensor out_view = view(out.data(), {1, 5, 4, 4, 4});
  const Tensors tensors = {&x_view, nullptr, &out_view};
  EXPECT_EQ((*session)->enqueue(tensors, nullptr).code(), VOLUP_STATUS_NOT_PREPARED);
  ASSERT_TRUE((*session)->prepare({1, 3, 2, 2, 2}).ok());
  EXPECT_TRUE((*session)->enqueue(tensors, nullptr).ok());
}

TEST(Session, OneThreadAtATime) {
  auto session = Session::create(make_model(EpilogueKind::kIdentity), cpu());
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->try_enter());
  bool second = true;
  std::thread([&] { second = (*session)->try_enter(); }).join();
  EXPECT_FALSE(second);
  (*session)->leave();
  EXPECT_TRUE((*session)->try_enter());
}

}  // namespace
}  // namespace volup
