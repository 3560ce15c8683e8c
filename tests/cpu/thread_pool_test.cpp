// SPDX-License-Identifier: Apache-2.0
//
// The pool: every task once, by the worker that owns it, whatever the counts; in the child of a
// fork too; and silent when idle.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "cpu_test.h"

namespace volup::test {
namespace {

// The worker of each task.
std::vector<int> workers_of(ThreadPool& pool, int64_t tasks) {
  std::vector<int> workers(static_cast<size_t>(tasks), -1);
  std::vector<std::atomic<int>> times(static_cast<size_t>(tasks));
  pool.run(tasks, [&](int64_t task, int worker) {
    workers[static_cast<size_t>(task)] = worker;
    ++times[static_cast<size_t>(task)];
  });
  for (const auto& count : times) EXPECT_EQ(count.load(), 1);
  return workers;
}

TEST(ThreadPool, EveryTaskOnceInEqualShares) {
  for (const int size : {1, 2, 3, 8}) {
    ThreadPool pool(size);
    EXPECT_EQ(pool.size(), size);
    for (const int64_t tasks : {0, 1, 2, 7, 64, 1000}) {
      const auto workers = workers_of(pool, tasks);
      EXPECT_TRUE(std::is_sorted(workers.begin(), workers.end()));
      EXPECT_EQ(workers, workers_of(pool, tasks)) << "the partition changed";
      for (int worker = 0; worker < size && tasks > 1; ++worker) {
        const auto share = std::count(workers.begin(), workers.end(), worker);
        EXPECT_GE(share, tasks / size);
        EXPECT_LE(share, tasks / size + 1);
      }
    }
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
    workers_of(pool, 8);
    EXPECT_EQ(child_status(pool), 0);
    workers_of(pool, 8);
  }
}

// A pool that goes out of scope in the child must not wait for threads that are not there.
TEST(ThreadPool, IsDestroyedInTheChildOfAFork) {
  auto pool = std::make_unique<ThreadPool>(3);
  workers_of(*pool, 8);
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
  workers_of(pool, 8);
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
