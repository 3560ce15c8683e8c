// SPDX-License-Identifier: Apache-2.0
//
// The pool: every task once, whatever the counts and whoever is held up; in the child of a fork
// too; and silent when idle.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "cpu_test.h"

namespace volup::test {
namespace {

void expect_every_task_once(ThreadPool& pool, int64_t tasks) {
  std::vector<std::atomic<int>> times(static_cast<size_t>(tasks));
  std::vector<std::atomic<int>> busy(static_cast<size_t>(pool.size()));
  pool.run(tasks, [&](int64_t task, int worker) {
    EXPECT_EQ(busy[static_cast<size_t>(worker)]++, 0) << "a worker does two tasks at a time";
    ++times[static_cast<size_t>(task)];
    --busy[static_cast<size_t>(worker)];
  });
  for (const auto& count : times) EXPECT_EQ(count.load(), 1);
}

TEST(ThreadPool, EveryTaskOnce) {
  for (const int size : {1, 2, 3, 8}) {
    ThreadPool pool(size);
    EXPECT_EQ(pool.size(), size);
    for (const int64_t tasks : {0, 1, 2, 7, 64, 1000}) expect_every_task_once(pool, tasks);
  }
}

// The first task of each share in turn waits for all tasks but itself: those behind it in its share
// too, which others must do.
TEST(ThreadPool, OthersDoWhatAHeldUpWorkerHasLeft) {
  constexpr int64_t kTasks = 12;
  ThreadPool pool(3);
  for (const int64_t held_up : {0, 4, 8}) {
    std::atomic<int64_t> done = 0;
    bool in_time = true;
    pool.run(kTasks, [&](int64_t task, int) {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (task == held_up && done.load() < kTasks - 1 && in_time) {
        in_time = std::chrono::steady_clock::now() < limit;
        usleep(100);
      }
      ++done;
    });
    EXPECT_TRUE(in_time) << "first task of a share: " << held_up;
    EXPECT_EQ(done.load(), kTasks);
  }
}

TEST(ThreadPool, ManyShortRuns) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum = 0;
  for (int64_t i = 0; i < 3000; ++i) {
    pool.run(3, [&](int64_t task, int) { sum += task; });
  }
  EXPECT_EQ(sum.load(), 9000);
}

// Nonzero where the child's work went wrong.
int child_status(ThreadPool& pool) {
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> done = 0;
    pool.run(64, [&](int64_t, int) { ++done; });
    pool.run(64, [&](int64_t, int) { ++done; });
    _exit(done.load() == 128 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(ThreadPool, WorksInTheChildOfAFork) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer starts no threads after fork";
#endif
  for (const int size : {1, 2, 4}) {
    ThreadPool pool(size);
    expect_every_task_once(pool, 8);
    EXPECT_EQ(child_status(pool), 0);
    expect_every_task_once(pool, 8);
  }
}

// A pool that goes out of scope in the child must not wait for threads that are not there.
TEST(ThreadPool, IsDestroyedInTheChildOfAFork) {
  auto pool = std::make_unique<ThreadPool>(3);
  expect_every_task_once(*pool, 8);
  const pid_t child = fork();
  if (child == 0) {
    pool.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ThreadPool, IdleThreadsSleep) {
  ThreadPool pool(4);
  expect_every_task_once(pool, 8);
  const auto seconds = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec) + 1e-6 * usage.ru_utime.tv_usec;
  };
  const double before = seconds();
  usleep(300000);
  EXPECT_LT(seconds() - before, 0.1);
}

TEST(CpuDevice, SaysWhatItIs) {
  const auto device = open_cpu_device(0);
  ASSERT_TRUE(device.ok()) << device.status().text();
  const DeviceProperties& p = (*device)->properties();
  EXPECT_EQ(p.type, DeviceType::kCpu);
  EXPECT_GE(p.threads, 1);
  EXPECT_EQ((*device)->threads()->size(), p.threads);
  EXPECT_FALSE(p.name.empty());
  const auto memory = (*device)->allocate(1000);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 256, 0u);
  (*device)->free(*memory);
  EXPECT_EQ((*device)->allocate(std::numeric_limits<size_t>::max() - 5).status().code(),
            VOLUP_STATUS_OUT_OF_MEMORY);
}

TEST(CpuDevice, RefusesBadThreadCounts) {
  for (const int threads : {-1, 1 << 20}) {
    const auto device = open_cpu_device(threads);
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.status().code(), VOLUP_STATUS_INVALID_ARGUMENT);
    EXPECT_NE(device.status().text().find(cat("got ", threads)), std::string::npos);
  }
}

}  // namespace
}  // namespace volup::test
