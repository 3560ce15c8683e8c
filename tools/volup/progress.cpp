// SPDX-License-Identifier: Apache-2.0
//
// See progress.h.
#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace volup::tool {
namespace {

using std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(1);        // shorter work shows no bar
constexpr auto kRefresh = std::chrono::milliseconds(100);  // fast enough to look alive
constexpr int kWidth = 30;                                 // fits an 80-column terminal

std::mutex stderr_mutex;
bool bar_drawn = false;  // guarded by stderr_mutex

void wipe_bar_locked() {
  if (!bar_drawn) return;
  std::fputs("\r\033[K", stderr);
  bar_drawn = false;
}

}  // namespace

void say(std::string_view line) {
  const std::lock_guard lock(stderr_mutex);
  wipe_bar_locked();
  std::fprintf(stderr, "volup: %.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(stderr);
}

Progress::Progress(bool quiet) : start_(steady_clock::now()) {
  if (quiet || isatty(STDERR_FILENO) == 0) return;
  thread_ = std::thread([this] { draw_until_stopped(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
  const std::lock_guard lock(stderr_mutex);
  wipe_bar_locked();
  std::fflush(stderr);
}

void Progress::phase(std::string name) {
  const std::lock_guard lock(mutex_);
  name_ = std::move(name);
  part_ = 0;
  all_ = 0;
}

void Progress::done(std::int64_t part, std::int64_t all) {
  const std::lock_guard lock(mutex_);
  part_ = part;
  all_ = all;
}

void Progress::draw_until_stopped() {
  std::unique_lock lock(mutex_);
  if (stop_.wait_for(lock, kPatience, [this] { return stopping_; })) return;
  do {
    const std::string text = line(steady_clock::now());
    const std::lock_guard stderr_lock(stderr_mutex);
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
    bar_drawn = true;
  } while (!stop_.wait_for(lock, kRefresh, [this] { return stopping_; }));
}

std::string Progress::line(steady_clock::time_point now) const {
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(now - start_);
  std::string bar(kWidth, ' ');
  std::string tail;
  if (all_ > 0) {
    const double fraction = static_cast<double>(part_) / static_cast<double>(all_);
    std::fill_n(bar.begin(), static_cast<int>(fraction * kWidth), '=');
    tail = std::to_string(static_cast<int>(fraction * 100)) + " % ";
  } else {
    constexpr int kMark = 3;
    constexpr int kTrack = kWidth - kMark;
    const int step = static_cast<int>((elapsed / kRefresh) % (2 * kTrack));
    bar.replace(step < kTrack ? step : 2 * kTrack - step, kMark, "<=>");
  }
  std::string text = "\r\033[K";
  text += name_ + " [" + bar + "] " + tail;
  return text + std::to_string(elapsed.count() / 1000) + " s";
}

}  // namespace volup::tool
