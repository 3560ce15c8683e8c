// SPDX-License-Identifier: Apache-2.0
//
// Runs the built volup tool as a user would: its own process, stdout and stderr apart. Holds no
// expectations but the one that every failure must meet.
#ifndef VOLUP_TESTS_TOOL_TOOL_RUNNER_H_
#define VOLUP_TESTS_TOOL_TOOL_RUNNER_H_

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace volup::test {

struct Outcome {
  int exit_code = -1;  // -1: it did not exit by itself
  std::string out;
  std::string err;
  std::string rerun;  // the command as one would type it

  std::string last_line() const;  // of stderr
};

using Environment = std::vector<std::pair<std::string, std::string>>;

Outcome run_tool(const std::vector<std::string>& arguments, const Environment& environment = {});

// The exit code is as given, stdout holds no result, and stderr ends in one whole sentence that
// has each of words in it.
void expect_failure(const Outcome& outcome, int exit_code, const std::vector<std::string>& words);
void expect_good(const Outcome& outcome);

// A folder of its own for the test that runs, emptied first; its name has a space and UTF-8 in it.
std::filesystem::path scratch();

std::filesystem::path cases_dir();
std::filesystem::path models_dir();
// Skips the test (by the caller) where TorchScript files cannot be loaded.
bool has_torchscript();

}  // namespace volup::test

#endif  // VOLUP_TESTS_TOOL_TOOL_RUNNER_H_
