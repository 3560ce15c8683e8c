// SPDX-License-Identifier: Apache-2.0
//
// The log: lines go to the caller's sink, to stderr if the environment's VOLUP_LOG asks for it,
// else nowhere. The library prints in no other place.
#ifndef VOLUP_LOG_H_
#define VOLUP_LOG_H_

#include <string>

#include "status.h"

namespace volup {

void set_log(volup_log_sink sink, void* context, volup_log_level level);

// Whether a line of this level would go anywhere: ask before building an expensive one.
bool log_enabled(volup_log_level level);

void log_line(volup_log_level level, const std::string& line);

template <typename... Parts>
void log(volup_log_level level, const Parts&... parts) {
  if (log_enabled(level)) log_line(level, cat(parts...));
}

}  // namespace volup

#endif  // VOLUP_LOG_H_
