// SPDX-License-Identifier: Apache-2.0
//
// How a command of the tool ends: the exit codes, and the exception that carries one with its
// sentence to main(). Holds no text and no mapping from volup's statuses (library.h does).
#ifndef VOLUP_TOOLS_VOLUP_FAILURE_H_
#define VOLUP_TOOLS_VOLUP_FAILURE_H_

#include <stdexcept>
#include <string>

namespace volup::tool {

// Pinned: scripts branch on these (docs/tool.md).
enum class ExitCode : int {
  kGood = 0,
  kCheckFailed = 1,
  kUsage = 2,
  kUnsupported = 3,
  kUnreadable = 4,
  kDevice = 5,
  kInternal = 70,  // a fault of volup itself; EX_SOFTWARE of sysexits.h
};

class Failure : public std::runtime_error {
 public:
  Failure(ExitCode code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_FAILURE_H_
