// SPDX-License-Identifier: Apache-2.0
//
// The five commands. Each prints its result on stdout and returns its exit code, or throws Failure.
#ifndef VOLUP_TOOLS_VOLUP_COMMANDS_H_
#define VOLUP_TOOLS_VOLUP_COMMANDS_H_

#include "failure.h"
#include "options.h"

namespace volup::tool {

ExitCode inspect(const Options& options);
ExitCode convert(const Options& options);
ExitCode run(const Options& options);
ExitCode check(const Options& options);
ExitCode bench(const Options& options);

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_COMMANDS_H_
