// SPDX-License-Identifier: Apache-2.0
//
// The tool of a build without HDF5: run and check say so in one sentence.
#include <gtest/gtest.h>

#include "tool_runner.h"

namespace volup::test {
namespace {

TEST(ToolWithoutHdf5, SaysSo) {
  if (!has_torchscript()) GTEST_SKIP() << "built without the TorchScript module: no model loads";
  const auto model = models_dir() / "logsumexp_swish_clamp.pt";
  const auto io = models_dir() / "logsumexp_swish_clamp.io.h5";
  expect_failure(run_tool({"check", model, io, "--device", "cpu"}), 3, {"HDF5"});
  expect_failure(run_tool({"run", model, "--input", io, "--output", "/none.h5", "--device", "cpu"}),
                 3, {"HDF5"});
  expect_failure(run_tool({"convert", model, scratch() / "m.h5"}), 3, {});
}

}  // namespace
}  // namespace volup::test
