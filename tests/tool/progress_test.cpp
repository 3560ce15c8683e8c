// SPDX-License-Identifier: Apache-2.0
//
// The progress bar: drawn on a terminal for work over a second, wiped at the end, and never drawn
// elsewhere or when quiet. The terminal is a pseudo-terminal of the test.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "tool_runner.h"

namespace volup::test {
namespace {

using std::chrono::steady_clock;

std::vector<std::string> bench_line(int iterations) {
  return {"bench",        "B n1 ci16 co16 i8x8x8 k3 s2 p1 op1",
          "--device",     "cpu",
          "--iterations", std::to_string(iterations)};
}

// Runs the tool with stderr on a terminal and returns what it wrote there.
std::string stderr_on_a_terminal(std::vector<std::string> words) {
  words.insert(words.begin(), VOLUP_TEST_TOOL);
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) return "no terminal";
  const std::string slave = ptsname(master);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, slave.c_str(), O_WRONLY | O_NOCTTY, 0);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  std::string written;
  char buffer[4096];
  // Reading fails once the child, the last to hold the slave, has ended.
  for (ssize_t got = 0; error == 0 && (got = read(master, buffer, sizeof buffer)) > 0;) {
    written.append(buffer, static_cast<std::size_t>(got));
  }
  close(master);
  int status = 0;
  if (error == 0) waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return written;
}

// Iterations that take well over the second after which a bar appears, on this machine.
int long_iterations() {
  for (int iterations = 16;; iterations *= 4) {
    const auto start = steady_clock::now();
    const Outcome outcome = run_tool(bench_line(iterations));
    expect_good(outcome);
    EXPECT_EQ(outcome.err, "") << "a bar where there is no terminal";
    if (outcome.exit_code != 0 || steady_clock::now() - start > std::chrono::milliseconds(2500)) {
      return iterations;
    }
  }
}

TEST(ToolProgress, ABarIsDrawnOnATerminalForLongWorkAndWiped) {
  const int iterations = long_iterations();
  const std::string written = stderr_on_a_terminal(bench_line(iterations));
  if (written == "no terminal") GTEST_SKIP() << "no pseudo-terminal can be had here";
  EXPECT_NE(written.find("timing ["), std::string::npos) << written;
  EXPECT_TRUE(written.ends_with("\r\033[K")) << "the bar is left on the terminal";
  auto quiet = bench_line(iterations);
  quiet.push_back("-q");
  EXPECT_EQ(stderr_on_a_terminal(quiet), "");
}

TEST(ToolProgress, ShortWorkDrawsNone) {
  const std::string written = stderr_on_a_terminal({"-V"});
  if (written == "no terminal") GTEST_SKIP() << "no pseudo-terminal can be had here";
  EXPECT_EQ(written, "");
}

}  // namespace
}  // namespace volup::test
