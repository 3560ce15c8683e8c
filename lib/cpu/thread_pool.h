// SPDX-License-Identifier: Apache-2.0
//
// A fixed pool of threads with a static partition: task t of T always belongs to the same share,
// and each worker begins with one of its own. Who is done helps with the others', so that a thread
// that the machine holds up does not hold up the rest. Idle workers sleep.
#ifndef VOLUP_CPU_THREAD_POOL_H_
#define VOLUP_CPU_THREAD_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace volup {

class ThreadPool {
 public:
  // Worker 0 is the thread that calls run; a pool of size 1 has no threads.
  explicit ThreadPool(int size);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Calls work(task, worker) for every task in [0, tasks) and returns when all are done. A worker
  // does one task at a time; which ones it does may differ from call to call. work must not throw.
  // One caller at a time; not from within work. In the child of a fork the threads are made anew.
  void run(int64_t tasks, const std::function<void(int64_t task, int worker)>& work);

 private:
  struct State;

  void start();

  int size_;
  int64_t owner_;  // the process that has the threads
  std::unique_ptr<State> state_;
};

}  // namespace volup

#endif  // VOLUP_CPU_THREAD_POOL_H_
