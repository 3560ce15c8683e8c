// SPDX-License-Identifier: Apache-2.0
//
// The command line of the tool: help, version, usage errors and their nearest good words. Computes
// nothing.
#include <gtest/gtest.h>
#include <volup/volup.h>

#include <string>
#include <vector>

#include "tool_runner.h"

namespace volup::test {
namespace {

const std::vector<std::string> kCommands = {"inspect", "convert", "run", "check", "bench"};

TEST(ToolUsage, HelpHasEveryCommandAndAnExample) {
  for (const char* flag : {"-h", "--help"}) {
    const Outcome outcome = run_tool({flag});
    expect_good(outcome);
    EXPECT_EQ(outcome.err, "");
    for (const std::string& command : kCommands) {
      EXPECT_NE(outcome.out.find("\n  " + command + " "), std::string::npos) << command;
    }
    EXPECT_NE(outcome.out.find("Example:"), std::string::npos);
  }
}

TEST(ToolUsage, EachCommandHasHelpWithItsOwnExample) {
  for (const std::string& command : kCommands) {
    for (const char* flag : {"-h", "--help"}) {
      const Outcome outcome = run_tool({command, flag});
      expect_good(outcome);
      EXPECT_NE(outcome.out.find("Example:\n  volup " + command + " "), std::string::npos)
          << outcome.out;
      EXPECT_NE(outcome.out.find("--json"), std::string::npos);
    }
  }
}

TEST(ToolUsage, VersionIsTheLibrarys) {
  const Outcome outcome = run_tool({"-V"});
  expect_good(outcome);
  EXPECT_EQ(outcome.out, "volup " + std::to_string(VOLUP_VERSION_MAJOR) + "." +
                             std::to_string(VOLUP_VERSION_MINOR) + "." +
                             std::to_string(VOLUP_VERSION_PATCH) + "\n");
  EXPECT_EQ(run_tool({"--version"}).out, outcome.out);
}

struct BadLine {
  std::vector<std::string> words;
  std::vector<std::string> named;  // in the last line of stderr
};

TEST(ToolUsage, NamesTheBadWordAndTheNearestGoodOne) {
  const std::vector<BadLine> lines = {
      {{}, {"command", "inspect, convert, run, check, bench"}},
      {{"-q"}, {"command"}},
      {{"inspekt", "f"}, {"'inspekt'", "'inspect'"}},
      {{"frobnicate"}, {"'frobnicate'", "inspect, convert, run, check, bench"}},
      {{"inspect"}, {"FILE"}},
      {{"convert", "a"}, {"OUT"}},
      {{"inspect", "a", "b"}, {"'b'"}},
      {{"inspect", "--jsn", "a"}, {"'--jsn'", "'--json'"}},
      {{"inspect", "--jsn"}, {"'--jsn'", "'--json'"}},
      {{"inspect", "a", "--device", "cpu"}, {"'--device'"}},
      {{"check", "a", "b", "--devise=cpu"}, {"'--devise'", "'--device'"}},
      {{"check", "a", "b", "--device", "cpi"}, {"'cpi'", "'cpu'"}},
      {{"check", "a", "b", "--device", "opencl"}, {"'opencl'", "auto, cpu, cuda"}},
      {{"check", "a", "b", "--device", "cuda:x"}, {"'cuda:x'", "cuda:0"}},
      {{"check", "a", "b", "--device", "cuda:-1"}, {"'cuda:-1'"}},
      {{"check", "a", "b", "--device"}, {"--device"}},
      {{"check", "a", "b", "--precision", "fp23"}, {"'fp23'", "'fp32'"}},
      {{"check", "a", "b", "--io", "tf32"}, {"'tf32'", "'fp32'"}},
      {{"check", "a", "b", "--threads", "two"}, {"'two'", "whole number"}},
      {{"check", "a", "b", "--threads", "0"}, {"'0'", "at least 1"}},
      {{"check", "a", "b", "--threads", "1.5"}, {"'1.5'"}},
      {{"run", "a", "--output", "o.h5"}, {"--input"}},
      {{"run", "a", "--input", "i.h5"}, {"--output"}},
      {{"run", "a", "--inptu", "i.h5", "--output", "o.h5"}, {"'--inptu'", "'--input'"}},
      {{"bench", "a", "--shape", "1,2,3,4"}, {"'1,2,3,4'", "N,C,D,H,W"}},
      {{"bench", "a", "--shape", "1,2,3,4,5,6"}, {"'1,2,3,4,5,6'"}},
      {{"bench", "a", "--shape", "1,2,3,4,-5"}, {"'1,2,3,4,-5'"}},
      {{"bench", "a", "--shape", "1,2,3,4,5x"}, {"'1,2,3,4,5x'"}},
      {{"bench", "B n1 ci4 co4 i2x2x2 k3", "--seed", "-1"}, {"'-1'", "--seed"}},
      {{"bench", "B n1 ci4 co4 i2x2x2 k3", "--iterations", "0"}, {"'0'", "--iterations"}},
      {{"bench", "B n1 ci4 co4 i2x2x2 k3 zz9"}, {"zz9"}},
      {{"bench", "Q n1 ci4 co4 i2x2x2 k3"}, {"Q"}},
      {{"bench", VOLUP_TEST_TOOL}, {"--shape"}},
      {{"bench", "B n1 ci4 co4 i2x2x2 k3", "--type", "B"}, {"--type", "a problem string"}},
      {{"inspect", "a", "--type", "softmax_sigmod"}, {"'softmax_sigmod'", "'softmax_sigmoid'"}},
      {{"inspect", "a", "--typ", "B"}, {"'--typ'", "'--type'"}},
      {{"inspect", "a", "--padding", "1"}, {"--stride is missing", "--padding"}},
      {{"inspect", "a", "--stride", "2x2"}, {"--stride", "'2x2'", "one number or three"}},
      {{"inspect", "a", "--stride", "1x2x3x4"}, {"'1x2x3x4'"}},
      {{"inspect", "a", "--stride", "-1"}, {"--stride", "'-1'"}},
      {{"inspect", "a", "--stride", "2.5"}, {"--stride", "'2.5'"}},
      {{"inspect", "a", "--stride", "1", "--padding", "1:"}, {"--padding", "'1:'"}},
      {{"inspect", "a", "--stride", "1", "--groups", "1x1x1"}, {"--groups", "'1x1x1'"}},
      {{"inspect", "a", "--shift", "3"}, {"--type is missing", "--shift"}},
      {{"inspect", "a", "--type", "A", "--shift", "3,5"}, {"--shift", "'3,5'"}},
      {{"inspect", "a", "--type", "C", "--subtract", "1"}, {"--subtract", "no such constant"}},
      {{"inspect", "a", "--type", "B", "--clamp-min", "1"}, {"--clamp-min", "no such constant"}},
      {{"inspect", "a", "--type", "A", "--divisor", "0"}, {"divisor 0"}},
      {{"inspect", "a", "--stride", "2", "--output-padding", "2"}, {"output_padding"}},
  };
  for (const BadLine& line : lines) expect_failure(run_tool(line.words), 2, line.named);
}

TEST(ToolUsage, OneLineOnStderrSaysIt) {
  const Outcome outcome = run_tool({"check", "a", "b", "--device", "cpi"});
  EXPECT_EQ(outcome.err, outcome.last_line() + "\n");
}

TEST(ToolUsage, UnwritableStdoutIsAFailure) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  const std::string command = std::string("'") + VOLUP_TEST_TOOL + "' -h > /dev/full 2> /dev/null";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 4) << "rerun: " << command;
}

}  // namespace
}  // namespace volup::test
