// SPDX-License-Identifier: Apache-2.0
//
// volup, the command-line tool: picks the command, and sees to it that the last line on stderr of a
// failure is one whole sentence and the exit code says of which kind it is.
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include "command_line.h"
#include "commands.h"
#include "library.h"
#include "progress.h"
#include "words.h"

namespace {

using volup::tool::Command;
using volup::tool::ExitCode;
using volup::tool::Failure;

ExitCode run_command(const volup::tool::Options& options) {
  volup::tool::set_log(options.verbosity);
  switch (options.command) {
    case Command::kInspect:
      return volup::tool::inspect(options);
    case Command::kConvert:
      return volup::tool::convert(options);
    case Command::kRun:
      return volup::tool::run(options);
    case Command::kCheck:
      return volup::tool::check(options);
    case Command::kBench:
      return volup::tool::bench(options);
    case Command::kNone:
      break;
  }
  throw Failure(ExitCode::kUsage, "a command is missing; see volup --help");
}

ExitCode run_line(int argc, char** argv) {
  const auto line = volup::tool::parse_command_line(argc, argv);
  const ExitCode code =
      line.answer.empty() ? run_command(line.options) : (std::cout << line.answer, ExitCode::kGood);
  if (!std::cout.flush()) {
    throw Failure(ExitCode::kUnreadable, "the result could not be written to standard output");
  }
  return code;
}

ExitCode fail(ExitCode code, const std::string& sentence) {
  std::cout.flush();  // so that in a log of both the sentence comes last
  volup::tool::say(volup::tool::one_sentence(sentence));
  return code;
}

ExitCode guarded(int argc, char** argv) {
  try {
    return run_line(argc, argv);
  } catch (const Failure& failure) {
    return fail(failure.code(), failure.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::kDevice, "out of host memory");
  } catch (const std::exception& error) {
    return fail(ExitCode::kInternal,
                std::string("a fault of volup itself, please report it: ") + error.what());
  }
}

}  // namespace

int main(int argc, char** argv) { return static_cast<int>(guarded(argc, argv)); }
