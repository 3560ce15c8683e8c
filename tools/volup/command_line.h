// SPDX-License-Identifier: Apache-2.0
//
// The command line: subcommands, options, their help and examples, and usage errors that name the
// bad word and the nearest good one. Runs no command.
#ifndef VOLUP_TOOLS_VOLUP_COMMAND_LINE_H_
#define VOLUP_TOOLS_VOLUP_COMMAND_LINE_H_

#include <string>

#include "options.h"

namespace volup::tool {

struct CommandLine {
  Options options;
  std::string answer;  // help or version text to print instead of running a command
};

// Throws Failure (kUsage) on a usage error.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_COMMAND_LINE_H_
