// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace volup {
namespace {

FloatArray array(std::initializer_list<float> values) {
  std::shared_ptr<float[]> made(new float[values.size()]);
  std::copy(values.begin(), values.end(), made.get());
  return made;
}

ConvTranspose3d one_by_two() {
  ConvTranspose3d g;
  g.in_channels = 1;
  g.out_channels = 2;
  return g;
}

Result<std::shared_ptr<const Model>> with_epilogue(const Epilogue& epilogue) {
  return Model::create(one_by_two(), epilogue, array({1, 2}), 2, nullptr, 0, ModelSource{});
}

TEST(Model, ConstantsThatTheKindDoesNotNameAreIgnored) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto softmax = with_epilogue({EpilogueKind::kSoftmaxSigmoid, nan, 0, nan, 2, 1});
  ASSERT_TRUE(softmax.ok()) << softmax.status().text();
  EXPECT_EQ((*softmax)->epilogue(), default_epilogue(EpilogueKind::kSoftmaxSigmoid));
  const auto hardswish = with_epilogue({EpilogueKind::kAddHardswish, 3, 6, nan, 0, 6});
  ASSERT_TRUE(hardswish.ok()) << hardswish.status().text();
  EXPECT_EQ((*hardswish)->epilogue(), default_epilogue(EpilogueKind::kAddHardswish));
}

TEST(Model, ConstantsThatItNamesAreChecked) {
  EXPECT_FALSE(with_epilogue({EpilogueKind::kAddHardswish, 3, 0, 0, 0, 6}).ok());
  EXPECT_FALSE(with_epilogue({EpilogueKind::kAddHardswish, 3, 6, 0, 7, 6}).ok());
  EXPECT_FALSE(with_epilogue({EpilogueKind::kLogsumexpSwishClamp, 3, 6, NAN, -1, 1}).ok());
  EXPECT_TRUE(with_epilogue({EpilogueKind::kLogsumexpSwishClamp, 3, 6, 0, -INFINITY, 1}).ok());
}

TEST(Model, ArraysMustFitTheGeometry) {
  const Epilogue identity = default_epilogue(EpilogueKind::kIdentity);
  const auto make = [&](FloatArray weight, int64_t weights, FloatArray bias, int64_t biases) {
    return Model::create(one_by_two(), identity, std::move(weight), weights, std::move(bias),
                         biases, ModelSource{});
  };
  EXPECT_EQ(make(nullptr, 2, nullptr, 0).status().code(), VOLUP_STATUS_INVALID_ARGUMENT);
  EXPECT_NE(make(array({1}), 1, nullptr, 0).status().text().find("got 1 elements, need 2 for"),
            std::string::npos);
  EXPECT_NE(make(array({1, 2}), 2, array({1}), 1).status().text().find("bias: got 1"),
            std::string::npos);
  EXPECT_TRUE(make(array({1, 2}), 2, array({3, 4}), 2).ok());
}

TEST(Model, KnowsWhatKernelsAskOfItsWeights) {
  const Epilogue identity = default_epilogue(EpilogueKind::kIdentity);
  const auto facts = [&](FloatArray weight) {
    return (*Model::create(one_by_two(), identity, std::move(weight), 2, nullptr, 0, {}))
        ->weight_facts();
  };
  EXPECT_TRUE(facts(array({1, 2})).finite);
  EXPECT_FALSE(facts(array({1, INFINITY})).finite);
  EXPECT_EQ(facts(array({1, 1024})).exponent_range, 0) << "ranges are within an output channel";
  ConvTranspose3d two_taps = one_by_two();
  two_taps.kernel[2] = 2;
  const auto wide = Model::create(two_taps, identity, array({0, 1, 1, 1024}), 4, nullptr, 0, {});
  EXPECT_EQ((*wide)->weight_facts().exponent_range, 10);
  EXPECT_EQ((*wide)->weight_facts().greatest_exponent, 10);
  EXPECT_EQ((*wide)->weight_facts().exponent_span, 10);
  EXPECT_EQ(facts(array({1, -1024})).exponent_span, 10) << "spans are over all of them";
  EXPECT_EQ(facts(array({0, 0})).greatest_exponent, 0);
  const auto tiny =
      Model::create(two_taps, identity, array({0x1p-140f, -0x1.8p3f, 1, 1}), 4, nullptr, 0, {});
  EXPECT_EQ((*tiny)->weight_facts().exponent_range, 143) << "a subnormal";
}

TEST(Model, DescribesItselfInJson) {
  const auto model = with_epilogue(default_epilogue(EpilogueKind::kSoftmaxSigmoid));
  const std::string& json = (*model)->description();
  EXPECT_EQ(json.find(R"({"type":"softmax_sigmoid","geometry":{"in_channels":1)"), 0u) << json;
  EXPECT_NE(json.find(R"("parameters":2)"), std::string::npos) << json;
}

}  // namespace
}  // namespace volup
