#include "client/stream_queue.h"

#include <grpcpp/alarm.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

namespace attnd::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

// Set on a queue, and over when it rings or is cancelled.
class Ring final : public StreamQueue::Tag {
 public:
  Ring(StreamQueue& queue, system_clock::time_point at) {
    alarm_.Set(queue.get(), at, static_cast<StreamQueue::Tag*>(this));
  }

  void OnDone(bool ok) override {
    rang = ok;
    ++times;
    thread = std::this_thread::get_id();
  }
  void Cancel() { alarm_.Cancel(); }

  bool rang = false;
  int times = 0;
  std::thread::id thread;

 private:
  grpc::Alarm alarm_;
};

TEST(StreamQueueTest, EndsWhenAllOperationsAreOverOnOneThread) {
  std::deque<Ring> rings;
  {
    StreamQueue queue;
    const auto start = system_clock::now();
    for (int i = 0; i < 100; ++i)
      rings.emplace_back(queue, start + milliseconds(i % 30));
  }
  for (const Ring& ring : rings) {
    EXPECT_TRUE(ring.rang);
    EXPECT_EQ(ring.times, 1);
    EXPECT_EQ(ring.thread, rings.front().thread);
    EXPECT_NE(ring.thread, std::this_thread::get_id());
  }
}

TEST(StreamQueueTest, OperationsThatFailAreOverToo) {
  std::deque<Ring> rings;
  {
    StreamQueue queue;
    for (int i = 0; i < 100; ++i) {
      rings.emplace_back(queue, system_clock::now() + std::chrono::hours(1));
    }
    for (Ring& ring : rings) ring.Cancel();
  }
  for (const Ring& ring : rings) {
    EXPECT_FALSE(ring.rang);
    EXPECT_EQ(ring.times, 1);
  }
}

TEST(StreamQueueTest, EndsWithoutHavingBeenUsed) { StreamQueue queue; }

}  // namespace
}  // namespace attnd::client
