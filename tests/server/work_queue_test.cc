#include "server/scheduling/work_queue.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;

const absl::Time kNow = absl::UnixEpoch();

WorkPtr MakeWork(const std::string& client,
                 absl::Time deadline = absl::InfiniteFuture()) {
  auto work = std::make_shared<Work>();
  work->client = client;
  work->admitted = kNow;
  work->deadline = deadline;
  return work;
}

Footprint Flops(double flops) {
  Footprint footprint;
  footprint.flops = flops;
  return footprint;
}

TEST(WorkQueue, GivesIdsAndKnowsWhatWaits) {
  WorkQueue queue({});
  WorkPtr a = MakeWork("a"), b = MakeWork("b");
  queue.Add(a, Flops(10), /*devices=*/1);
  queue.Add(b, Flops(20), 1);
  EXPECT_LT(a->id, b->id);
  EXPECT_EQ(queue.requests(), 2);
  EXPECT_EQ(queue.flops(), 30);
  EXPECT_EQ(queue.Remove(a->id), a);
  EXPECT_EQ(queue.Remove(a->id), nullptr);
  EXPECT_EQ(queue.Remove(MakeWork("c")->id), nullptr);
  EXPECT_EQ(queue.requests(), 1);
  EXPECT_EQ(queue.flops(), 20);
}

TEST(WorkQueue, AGroupAndItsCost) {
  WorkQueue queue({});
  EXPECT_THAT(queue.Take({}, kNow).works, ElementsAre());
  WorkPtr a = MakeWork("a"), b = MakeWork("b");
  queue.Add(a, Flops(10), /*devices=*/1);
  const double cost_of_a = queue.cost();
  queue.Add(b, Flops(10), 1);
  WorkQueue::Group group = queue.Take({}, kNow);
  EXPECT_THAT(group.works, ElementsAre(a, b));
  EXPECT_EQ(group.cost, 2 * cost_of_a);
  EXPECT_EQ(queue.requests(), 0);
}

TEST(WorkQueue, SaysWhenToAskAgain) {
  SchedulerOptions options;
  options.max_batch_delay = absl::Seconds(1);
  WorkQueue queue(options);
  queue.Add(MakeWork("a"), Flops(1), /*devices=*/1);
  EXPECT_EQ(queue.Take({}, kNow).ask_again, kNow + absl::Seconds(1));
  EXPECT_EQ(queue.requests(), 1);
  queue.StopWaiting();
  EXPECT_EQ(queue.Take({}, kNow).works.size(), 1);
}

TEST(WorkQueue, HasRoomForSoManyRequestsAndSoMuchWork) {
  SchedulerOptions options;
  options.max_queue_requests = 2;
  options.max_queue_flops = 100;
  WorkQueue queue(options);
  EXPECT_EQ(queue.CheckRoom("a", 101),
            absl::ResourceExhaustedError("too much work waits"));
  queue.Add(MakeWork("a"), Flops(60), /*devices=*/1);
  EXPECT_EQ(queue.CheckRoom("b", 40), absl::OkStatus());
  EXPECT_EQ(queue.CheckRoom("b", 41),
            absl::ResourceExhaustedError("too much work waits"));
  queue.Add(MakeWork("b"), Flops(1), 1);
  EXPECT_EQ(queue.CheckRoom("c", 1),
            absl::ResourceExhaustedError("too many requests wait"));
}

TEST(WorkQueue, LetsGoOfWhatCannotRunAnyMore) {
  WorkQueue queue({});
  WorkPtr late = MakeWork("a", kNow), lost = MakeWork("a"),
          rest = MakeWork("a");
  queue.Add(late, Flops(1), /*devices=*/2);
  queue.Add(lost, Flops(1), 1);
  queue.Add(rest, Flops(1), 3);
  EXPECT_THAT(queue.TakeExpired(kNow), ElementsAre(late));
  EXPECT_THAT(queue.TakeUnservable(/*devices=*/2), ElementsAre(lost));
  EXPECT_THAT(queue.Take({.device = 2}, kNow).works, ElementsAre(rest));
}

}  // namespace
}  // namespace attnd::server
