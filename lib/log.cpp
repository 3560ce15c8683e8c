// SPDX-License-Identifier: Apache-2.0
#include "log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>

namespace volup {
namespace {

void write_to_stderr(void*, volup_log_level level, const char* line) {
  constexpr const char* kNames[] = {"", "error", "info", "debug"};
  std::fprintf(stderr, "volup %s: %s\n", kNames[level], line);
}

struct Log {
  std::mutex mutex;
  volup_log_sink sink = nullptr;
  void* context = nullptr;
  std::atomic<int> level = 0;

  Log() {
    const char* wanted = std::getenv("VOLUP_LOG");
    if (wanted == nullptr) return;
    const std::string_view name = wanted;
    level = name == "error"   ? VOLUP_LOG_ERROR
            : name == "info"  ? VOLUP_LOG_INFO
            : name == "debug" ? VOLUP_LOG_DEBUG
                              : 0;
    if (level != 0) sink = write_to_stderr;
  }
};

// Never destroyed: threads may log while the process ends.
Log& the_log() {
  static Log* const log = new Log;
  return *log;
}

}  // namespace

void set_log(volup_log_sink sink, void* context, volup_log_level level) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.sink = sink;
  log.context = context;
  log.level = sink == nullptr ? 0 : static_cast<int>(level);
}

bool log_enabled(volup_log_level level) {
  return the_log().level.load(std::memory_order_relaxed) >= static_cast<int>(level);
}

void log_line(volup_log_level level, const std::string& line) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  if (log.sink != nullptr) log.sink(log.context, level, line.c_str());
}

}  // namespace volup
