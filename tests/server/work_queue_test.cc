#include "server/scheduling/work_queue.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduling/call_refusal.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;

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

void Put(WorkQueue& queue, const WorkPtr& work, double flops,
         uint64_t devices = 1) {
  ASSERT_EQ(queue.TakePlace(work->client, flops), absl::OkStatus());
  queue.Add(work, Flops(flops), devices);
}

TEST(WorkQueue, GivesIdsAndKnowsWhatWaits) {
  WorkQueue queue({});
  WorkPtr a = MakeWork("a"), b = MakeWork("b");
  Put(queue, a, 10);
  Put(queue, b, 20);
  EXPECT_LT(a->id, b->id);
  EXPECT_EQ(queue.requests(), 2);
  EXPECT_EQ(queue.flops(), 30);
  EXPECT_EQ(queue.Remove(a->id).work, a);
  EXPECT_EQ(queue.Remove(a->id).work, nullptr);
  EXPECT_EQ(queue.Remove(MakeWork("c")->id).work, nullptr);
  EXPECT_EQ(queue.requests(), 1);
  EXPECT_EQ(queue.flops(), 20);
}

TEST(WorkQueue, AGroupAndItsCost) {
  WorkQueue queue({});
  EXPECT_THAT(queue.Take({}, kNow).works, ElementsAre());
  WorkPtr a = MakeWork("a"), b = MakeWork("b");
  Put(queue, a, 10);
  const double cost_of_a = queue.cost();
  Put(queue, b, 10);
  WorkQueue::Group group = queue.Take({}, kNow);
  EXPECT_THAT(group.works, ElementsAre(a, b));
  EXPECT_EQ(group.cost, 2 * cost_of_a);
  EXPECT_EQ(queue.requests(), 0);
}

TEST(WorkQueue, SaysWhenToAskAgain) {
  SchedulerOptions options;
  options.max_batch_delay = absl::Seconds(1);
  WorkQueue queue(options);
  Put(queue, MakeWork("a"), 1);
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
  EXPECT_EQ(queue.TakePlace("a", 101),
            Refused(CallRefusal::kQueueFlops,
                    absl::ResourceExhaustedError("too much work waits")));
  Put(queue, MakeWork("a"), 60);
  EXPECT_EQ(queue.TakePlace("b", 41),
            Refused(CallRefusal::kQueueFlops,
                    absl::ResourceExhaustedError("too much work waits")));
  // A place counts whether or not its request has come.
  EXPECT_EQ(queue.TakePlace("b", 40), absl::OkStatus());
  EXPECT_EQ(queue.requests(), 1);
  EXPECT_EQ(queue.TakePlace("c", 0),
            Refused(CallRefusal::kQueueFull,
                    absl::ResourceExhaustedError("too many requests wait")));
  queue.GiveUpPlace("b", 40);
  EXPECT_EQ(queue.TakePlace("c", 40), absl::OkStatus());
}

TEST(WorkQueue, AClientMayHaveALimitOfItsOwn) {
  WorkQueue queue({});
  EXPECT_EQ(queue.TakePlace("a", 60, /*most_flops=*/100), absl::OkStatus());
  EXPECT_EQ(queue.TakePlace("a", 41, 100),
            Refused(CallRefusal::kMaxClientQueueFlops,
                    absl::ResourceExhaustedError(WorkQueue::kClientFlops)));
  EXPECT_EQ(queue.TakePlace("b", 41, 100), absl::OkStatus());
  EXPECT_EQ(queue.TakePlace("a", 40, 100), absl::OkStatus());
  queue.GiveUpPlace("a", 60);
  EXPECT_EQ(queue.TakePlace("a", 60, 100), absl::OkStatus());
}

TEST(WorkQueue, PlacesCountAmongWhatAClientHolds) {
  SchedulerOptions options;
  options.max_queue_requests = 18;
  WorkQueue queue(options);
  int places = 0;
  while (queue.TakePlace("a", 1).ok()) ++places;
  EXPECT_LT(places, 18);
  EXPECT_EQ(queue.TakePlace("b", 1), absl::OkStatus());
  for (; places > 0; --places) queue.GiveUpPlace("a", 1);
  EXPECT_EQ(queue.TakePlace("a", 1), absl::OkStatus());
}

TEST(WorkQueue, KnowsTheOldestThatHasNotBegun) {
  WorkQueue queue({});
  EXPECT_EQ(queue.oldest(), absl::InfiniteFuture());
  WorkPtr first = MakeWork("a"), second = MakeWork("b");
  first->admitted = kNow;
  second->admitted = kNow + absl::Seconds(1);
  Put(queue, second, 1);
  Put(queue, first, 1);
  EXPECT_EQ(queue.oldest(), kNow);
  EXPECT_EQ(queue.Remove(first->id).work, first);
  EXPECT_EQ(queue.oldest(), kNow + absl::Seconds(1));
}

TEST(WorkQueue, LetsGoOfWhatCannotRunAnyMore) {
  WorkQueue queue({});
  WorkPtr late = MakeWork("a", kNow), lost = MakeWork("a"),
          rest = MakeWork("a");
  Put(queue, late, 1, /*devices=*/2);
  Put(queue, lost, 1, 1);
  Put(queue, rest, 1, 3);
  EXPECT_THAT(queue.TakeExpired(kNow),
              ElementsAre(Field(&Waiting::work, late)));
  EXPECT_THAT(queue.TakeUnservable(/*devices=*/2),
              ElementsAre(Field(&Waiting::work, lost)));
  EXPECT_THAT(queue.Take({.device = 2}, kNow).works, ElementsAre(rest));
}

}  // namespace
}  // namespace attnd::server
