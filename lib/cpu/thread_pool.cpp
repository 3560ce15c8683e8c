// SPDX-License-Identifier: Apache-2.0
//
// The pool of thread_pool.h: one mutex, a condition for "there is work" and one for "it is done".
// pthreads rather than std::thread, because a thread that cannot be made must not throw: its share
// is then done by the others.
#include "cpu/thread_pool.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace volup {

using Work = std::function<void(int64_t, int)>;

struct ThreadPool::State {
  struct Worker {
    State* state = nullptr;
    int index = 0;
    pthread_t thread = {};
    bool started = false;
  };

  // Tasks that follow each other, taken one by one.
  struct alignas(64) Share {
    std::atomic<int64_t> next = 0;
    int64_t end = 0;
  };

  explicit State(int size) : shares(static_cast<size_t>(size)), workers(shares.size() - 1) {}

  std::mutex mutex;
  std::condition_variable work_ready;
  std::condition_variable work_done;
  std::vector<Share> shares;
  std::vector<Worker> workers;  // of index 1 and up
  const Work* work = nullptr;
  uint64_t round = 0;
  int running = 0;
  bool stop = false;

  void divide(int64_t tasks) {
    // In 128 bits: tasks may be near 2^63.
    const auto edge = [&](size_t share) {
      return static_cast<int64_t>(static_cast<__int128>(tasks) * static_cast<__int128>(share) /
                                  static_cast<__int128>(shares.size()));
    };
    for (size_t i = 0; i < shares.size(); ++i) {
      shares[i].next = edge(i);
      shares[i].end = edge(i + 1);
    }
  }

  // The worker's own share, then what is left of the others'.
  void do_shares(int worker) {
    for (size_t i = 0; i < shares.size(); ++i) {
      Share& share = shares[(static_cast<size_t>(worker) + i) % shares.size()];
      while (true) {
        const int64_t task = share.next.fetch_add(1, std::memory_order_relaxed);
        if (task >= share.end) break;
        (*work)(task, worker);
      }
    }
  }

  static void* serve(void* argument) {
    const Worker& self = *static_cast<const Worker*>(argument);
    State& state = *self.state;
    uint64_t seen = 0;
    std::unique_lock lock(state.mutex);
    while (true) {
      state.work_ready.wait(lock, [&] { return state.stop || state.round != seen; });
      if (state.stop) return nullptr;
      seen = state.round;
      lock.unlock();
      state.do_shares(self.index);
      lock.lock();
      if (--state.running == 0) state.work_done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int size) : size_(std::max(size, 1)), owner_(0) { start(); }

ThreadPool::~ThreadPool() {
  if (owner_ != getpid()) {
    // The threads stayed in the parent; destroying what they wait on would wait for them.
    static_cast<void>(state_.release());
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->work_ready.notify_all();
  for (const State::Worker& worker : state_->workers) {
    if (worker.started) pthread_join(worker.thread, nullptr);
  }
}

void ThreadPool::start() {
  static_cast<void>(state_.release());  // a parent's state, as in the destructor
  state_ = std::make_unique<State>(size_);
  owner_ = getpid();
  for (int index = 1; index < size_; ++index) {
    State::Worker& worker = state_->workers[static_cast<size_t>(index - 1)];
    worker.state = state_.get();
    worker.index = index;
    worker.started = pthread_create(&worker.thread, nullptr, State::serve, &worker) == 0;
  }
}

void ThreadPool::run(int64_t tasks, const Work& work) {
  if (tasks <= 0) return;
  if (size_ == 1 || tasks == 1) {
    for (int64_t task = 0; task < tasks; ++task) work(task, 0);
    return;
  }
  if (owner_ != getpid()) start();
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    state.work = &work;
    state.divide(tasks);
    ++state.round;
    for (const State::Worker& worker : state.workers) state.running += worker.started;
  }
  state.work_ready.notify_all();
  state.do_shares(0);
  std::unique_lock lock(state.mutex);
  state.work_done.wait(lock, [&] { return state.running == 0; });
}

}  // namespace volup
