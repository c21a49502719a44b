#include "kernels/cpu/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <latch>
#include <set>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnd::cpu {
namespace {

using ::testing::Each;

TEST(ThreadPoolTest, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    std::vector<int> runs(1000, 0);  // a task touches only its own
    pool.ParallelFor({1000}, false, [&](int64_t task, int) { ++runs[task]; });
    EXPECT_THAT(runs, Each(1));
  }
}

TEST(ThreadPoolTest, StartsATurnWhenTheOneBeforeHasEnded) {
  constexpr int64_t kTurns[] = {5, 0, 1, 30, 0, 0, 7, 0};
  constexpr int64_t kEnds[] = {5, 6, 36, 43};
  for (const bool help : {false, true}) {
    ThreadPool pool(3);
    for (int job = 0; job < 200; ++job) {
      std::atomic<int64_t> ended{0};
      std::vector<int> runs(43, 0);
      pool.ParallelFor(kTurns, help, [&](int64_t task, int) {
        const auto turn =
            std::upper_bound(std::begin(kEnds), std::end(kEnds), task);
        EXPECT_GE(ended, turn == std::begin(kEnds) ? 0 : turn[-1]);
        ++runs[task];
        ++ended;
      });
      ASSERT_THAT(runs, Each(1));
    }
  }
}

TEST(ThreadPoolTest, AJobWaitsForItsTurnWhileOthersRun) {
  ThreadPool pool(2);
  std::latch small_done(1);
  std::thread caller([&] {
    // The second turn waits for a task of the first, which waits for the small
    // job, which needs the other thread.
    pool.ParallelFor({1, 3}, false, [&](int64_t task, int) {
      if (task == 0) small_done.wait();
    });
  });
  pool.ParallelFor({1}, false, [&](int64_t, int) { small_done.count_down(); });
  caller.join();
}

TEST(ThreadPoolTest, RunsNothingForNoTasks) {
  ThreadPool pool(2);
  pool.ParallelFor({}, false, [](int64_t, int) { FAIL(); });
  pool.ParallelFor({0}, false, [](int64_t, int) { FAIL(); });
}

TEST(ThreadPoolTest, GivesAWorkerOneTaskAtATime) {
  constexpr int kThreads = 3;
  ThreadPool pool(kThreads);
  std::vector<int64_t> sums(kThreads, 0);  // unguarded: a race if shared
  pool.ParallelFor({5000}, false, [&](int64_t task, int worker) {
    ASSERT_GE(worker, 0);
    ASSERT_LT(worker, kThreads);
    sums[worker] += task;
  });
  EXPECT_EQ(sums[0] + sums[1] + sums[2], 5000 * 4999 / 2);
}

TEST(ThreadPoolTest, RunsOnAllThreadsAtOnce) {
  constexpr int kThreads = 4;
  ThreadPool pool(kThreads);
  std::latch all(kThreads);  // passed only when all four are inside
  pool.ParallelFor({kThreads}, false,
                   [&](int64_t, int) { all.arrive_and_wait(); });
}

TEST(ThreadPoolTest, SharesItsThreadsBetweenCallers) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int job = 0; job < 50; ++job) {
        pool.ParallelFor({20}, false, [&](int64_t task, int) { sum += task; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 50 * 190);
}

TEST(ThreadPoolTest, ACallerThatHelpsNeedsNoThreadOfThePool) {
  ThreadPool pool(1);
  std::latch busy(1), small_done(1);
  std::thread caller([&] {
    // Holds the only thread until the small job has ended.
    pool.ParallelFor({1}, false, [&](int64_t, int) {
      busy.count_down();
      small_done.wait();
    });
  });
  busy.wait();
  int runs = 0;
  pool.ParallelFor({10}, true, [&](int64_t, int worker) {
    EXPECT_EQ(worker, pool.threads());
    ++runs;
  });
  EXPECT_EQ(runs, 10);
  small_done.count_down();
  caller.join();
}

TEST(ThreadPoolTest, AHelpingCallerSharesTheWork) {
  ThreadPool pool(2);
  std::latch all(3);  // passed only when both threads and the caller are in
  pool.ParallelFor({3}, true, [&](int64_t, int) { all.arrive_and_wait(); });
  for (int job = 0; job < 500; ++job) {
    std::vector<int> runs(7, 0);
    pool.ParallelFor({7}, true, [&](int64_t task, int) { ++runs[task]; });
    ASSERT_THAT(runs, Each(1));
  }
}

TEST(ThreadPoolTest, ASmallJobEndsWhileALongOneRuns) {
  ThreadPool pool(1);
  std::latch started(1);
  std::atomic<bool> small_done{false};
  std::atomic<int> after{0};
  std::thread caller([&] {
    // Its tasks go on until the small job has ended, so it could never end
    // were the small one made to wait for it.
    pool.ParallelFor({1'000'000}, false, [&](int64_t task, int) {
      if (task == 0) started.count_down();
      if (small_done) ++after;
    });
  });
  started.wait();
  pool.ParallelFor({1}, false, [&](int64_t, int) { small_done = true; });
  caller.join();
  EXPECT_GT(after, 0);
}

TEST(ThreadPoolTest, APausedJobGoesOnWhereItStopped) {
  constexpr int64_t kTurns[] = {3, 0, 20, 1, 0};
  constexpr int64_t kTasks = 24;
  for (const bool help : {false, true}) {
    ThreadPool pool(2);
    std::vector<int> runs(kTasks, 0);
    ThreadPool::Tasks tasks = {.turns = kTurns};
    int calls = 1;
    const auto run = [&](int64_t task, int) { return ++runs[task] > 0; };
    while (!pool.RunUntil([] { return true; }, help, run, tasks)) {
      // Whatever was taken has ended, and nothing more has begun.
      for (int64_t task = 0; task < kTasks; ++task) {
        ASSERT_EQ(runs[task], task < tasks.next ? 1 : 0);
      }
      ++calls;
    }
    EXPECT_THAT(runs, Each(1));
    EXPECT_GE(calls, kTasks / 5);
    EXPECT_LE(calls, kTasks);
  }
}

TEST(ThreadPoolTest, ATaskThatStoppedGoesOnBeforeItsTurnEnds) {
  constexpr int64_t kTurns[] = {2, 1};
  for (const bool help : {false, true}) {
    ThreadPool pool(2);
    std::vector<int> parts(3, 0);
    ThreadPool::Tasks tasks = {.turns = kTurns};
    // Of three parts each.
    const auto run = [&](int64_t task, int) {
      if (task == 2) {
        EXPECT_EQ(parts[0], 3);
        EXPECT_EQ(parts[1], 3);
      }
      return ++parts[task] == 3;
    };
    int calls = 1;
    while (!pool.RunUntil([] { return false; }, help, run, tasks)) ++calls;
    EXPECT_THAT(parts, Each(3));
    EXPECT_GE(calls, 5);  // one stop a call, or two at once
    EXPECT_LE(calls, 7);
  }
}

TEST(ThreadPoolTest, APauseAfterTheLastTaskIsNone) {
  ThreadPool pool(1);
  constexpr int64_t kTurns[] = {1, 0};
  ThreadPool::Tasks tasks = {.turns = kTurns};
  EXPECT_TRUE(pool.RunUntil([] { return true; }, false,
                            [](int64_t, int) { return true; }, tasks));
}

TEST(ThreadPoolTest, OtherJobsRunWhileOneIsPaused) {
  ThreadPool pool(1);
  constexpr int64_t kTurns[] = {3};
  ThreadPool::Tasks tasks = {.turns = kTurns};
  int runs = 0;
  const auto run = [&](int64_t, int) { return ++runs > 0; };
  EXPECT_FALSE(pool.RunUntil([] { return true; }, false, run, tasks));
  EXPECT_EQ(runs, 1);
  pool.ParallelFor({5}, false, [&](int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 6);
  EXPECT_TRUE(pool.RunUntil([] { return false; }, false, run, tasks));
  EXPECT_EQ(runs, 8);
}

}  // namespace
}  // namespace attnd::cpu
