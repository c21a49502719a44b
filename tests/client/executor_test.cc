#include "client/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace attnd::client {
namespace {

using ::testing::ElementsAre;

TEST(TaskQueueTest, RunsTasksInTheirOrderOnTheCallersThread) {
  TaskQueue queue;
  std::vector<int> ran;
  for (int i = 0; i < 3; ++i) {
    queue.Post([&, i] {
      EXPECT_EQ(ran.size(), i);
      ran.push_back(i);
    });
  }
  EXPECT_TRUE(ran.empty());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.RunOne());
  EXPECT_THAT(ran, ElementsAre(0, 1, 2));
}

TEST(TaskQueueTest, RunsTimersByTheirTimeAfterWhatIsReady) {
  TaskQueue queue;
  std::vector<int> ran;
  const auto add = [&](int i) { return [&ran, i] { ran.push_back(i); }; };
  // Posted later and due earlier, however long posting takes: a timer is looked
  // at when nothing is ready.
  queue.PostAfter(absl::Hours(10), add(3));
  queue.PostAfter(absl::Milliseconds(1), add(1));
  queue.PostAfter(absl::Milliseconds(2), add(2));
  queue.Post(add(0));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.RunOne());
  EXPECT_THAT(ran, ElementsAre(0, 1, 2));
}

TEST(TaskQueueTest, ATimerIsNeverEarly) {
  TaskQueue queue;
  const auto start = std::chrono::steady_clock::now();
  queue.PostAfter(absl::Milliseconds(5), [&] {
    EXPECT_GE(std::chrono::steady_clock::now() - start,
              std::chrono::milliseconds(5));
  });
  EXPECT_TRUE(queue.RunOne());
}

TEST(TaskQueueTest, ClosedItRunsWhatIsReadyAndDropsWhatIsNotDue) {
  TaskQueue queue;
  bool ready_ran = false, timer_ran = false;
  queue.PostAfter(absl::Hours(10), [&] { timer_ran = true; });
  queue.PostAfter(absl::InfiniteDuration(), [&] { timer_ran = true; });
  queue.Post([&] { ready_ran = true; });
  queue.Close();
  EXPECT_TRUE(queue.RunOne());
  EXPECT_FALSE(queue.RunOne());
  EXPECT_TRUE(ready_ran);
  EXPECT_FALSE(timer_ran);
}

TEST(TaskQueueTest, ATaskMayPostAndItsCapturesDieWithIt) {
  TaskQueue queue;
  auto captured = std::make_shared<int>(7);
  std::weak_ptr<int> alive = captured;
  int seen = 0;
  queue.Post([&, captured = std::move(captured)] {
    queue.Post([&seen, value = *captured] { seen = value; });
  });
  EXPECT_TRUE(queue.RunOne());
  EXPECT_TRUE(alive.expired());
  EXPECT_TRUE(queue.RunOne());
  EXPECT_EQ(seen, 7);
}

TEST(ThreadExecutorTest, OneThreadKeepsTheOrderOfTasks) {
  std::vector<int> ran;
  {
    ThreadExecutor executor(1);
    for (int i = 0; i < 1000; ++i) executor.Post([&, i] { ran.push_back(i); });
  }
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(ran, expected);
}

TEST(ThreadExecutorTest, ABlockedTaskLeavesTheOtherThreads) {
  ThreadExecutor executor(2);
  std::promise<void> release, other_ran;
  executor.Post([&] { release.get_future().wait(); });
  executor.Post([&] { other_ran.set_value(); });
  other_ran.get_future().wait();
  release.set_value();
}

TEST(ThreadExecutorTest, RunsTasksFromManyThreadsOnItsOwnOnly) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> ran{0};
  {
    ThreadExecutor executor(3);
    std::vector<std::thread> posters;
    for (int t = 0; t < 4; ++t) {
      posters.emplace_back([&] {
        for (int i = 0; i < 500; ++i) {
          const auto task = [&] {
            ++ran;
            std::lock_guard<std::mutex> lock(mutex);
            threads.insert(std::this_thread::get_id());
          };
          if (i % 2 == 0) {
            executor.Post(task);
          } else {
            executor.PostAfter(absl::ZeroDuration(), task);
          }
        }
      });
    }
    for (std::thread& poster : posters) poster.join();
  }
  EXPECT_EQ(ran, 2000);
  EXPECT_LE(threads.size(), 3);
}

// A queue may go as soon as the task that it waited for has run, while the
// thread that posted it is still leaving Post.
TEST(TaskQueueTest, MayBeDestroyedByTheTaskItWaitedFor) {
  for (int i = 0; i < 500; ++i) {
    auto queue = std::make_unique<TaskQueue>();
    bool done = false;
    std::thread poster(
        [&queue = *queue, &done] { queue.Post([&done] { done = true; }); });
    while (!done) queue->RunOne();
    queue.reset();
    poster.join();
  }
}

}  // namespace
}  // namespace attnd::client
