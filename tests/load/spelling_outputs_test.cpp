// SPDX-License-Identifier: Apache-2.0
//
// Every spelling of spellings/ that is read: its float64 output (make_spelling_outputs.py), by the
// library and by `volup check`.
#include <gtest/gtest.h>

#include "foreign_case.h"

namespace volup::test {
namespace {

const std::filesystem::path kFolder = VOLUP_TEST_SPELLINGS_DIR;

class Spelling : public testing::TestWithParam<std::string> {};

TEST_P(Spelling, MeetsItsFloat64Output) {
  const std::filesystem::path file = kFolder / (GetParam() + ".pt");
  const std::filesystem::path io_file = kFolder / (GetParam() + ".io.h5");
  const Io io(io_file);
  const SpokenOptions spoken;
  volup_model* model = nullptr;
  ASSERT_EQ(volup_model_load(file.c_str(), &spoken.options, &model), VOLUP_STATUS_OK)
      << volup_last_error();
  expect_outputs(model, io);
  volup_model_destroy(model);
  expect_checked(file, io_file, "");
}

INSTANTIATE_TEST_SUITE_P(Files, Spelling, testing::ValuesIn(names_in(kFolder, ".io.h5")),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace volup::test
