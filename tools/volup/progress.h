// SPDX-License-Identifier: Apache-2.0
//
// What the tool says on stderr while it works: a progress bar, drawn only on a terminal and only
// for work over a second, and whole lines that do not tear it. Results never pass through here.
#ifndef VOLUP_TOOLS_VOLUP_PROGRESS_H_
#define VOLUP_TOOLS_VOLUP_PROGRESS_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace volup::tool {

// Writes "volup: LINE" to stderr, wiping the bar first if one is drawn. From any thread.
void say(std::string_view line);

// A bar from construction to destruction. Phases of known length fill it; others move a mark, so
// that one sees the tool is alive during a single long call of the library.
class Progress {
 public:
  // quiet: draws nothing.
  explicit Progress(bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void phase(std::string name);                    // length unknown
  void done(std::int64_t part, std::int64_t all);  // of this phase

 private:
  void draw_until_stopped();
  std::string line(std::chrono::steady_clock::time_point now) const;

  const std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::string name_;
  std::int64_t part_ = 0;
  std::int64_t all_ = 0;
  std::thread thread_;
};

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_PROGRESS_H_
