#include "server/region/slab_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "proto/wire/status.h"
#include "tests/hang_limit.h"
#include "tests/notification.h"
#include "tests/server/region_testing.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using testing::Eventually;

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(DivideRegions, TakesHalfForTheLargestAndHalfOfTheRestForTheMiddle) {
  const int64_t mib64 = 64 * kMiB;
  EXPECT_THAT(DivideRegions(0, mib64), ElementsAre());
  EXPECT_THAT(DivideRegions(mib64, mib64), ElementsAre(SlabClass{mib64, 1}));
  EXPECT_THAT(DivideRegions(mib64 * 7, mib64),
              ElementsAre(SlabClass{mib64, 7}));
  EXPECT_THAT(DivideRegions(mib64 * 8, mib64),
              ElementsAre(SlabClass{mib64, 4}, SlabClass{4 * mib64, 1}));
  // 4 GiB.
  EXPECT_THAT(DivideRegions(mib64 * 64, mib64),
              ElementsAre(SlabClass{mib64, 16}, SlabClass{4 * mib64, 4},
                          SlabClass{16 * mib64, 2}));
}

TEST(DivideRegions, LeavesLessThanOneOver) {
  for (int64_t memory = 1; memory < int64_t{1} << 40; memory = memory * 3 + 1) {
    int64_t used = 0;
    for (const SlabClass& of : DivideRegions(memory, 2 * kMiB)) {
      EXPECT_GT(of.count, 0);
      used += of.bytes * of.count;
    }
    EXPECT_LE(used, memory);
    EXPECT_LT(memory - used, 2 * kMiB);
  }
}

class SlabPoolTest : public ::testing::Test {
 protected:
  SlabPoolTest() {
    auto keeper = Keeper::Start();
    EXPECT_TRUE(keeper.ok()) << keeper.status();
    keeper_ = *std::move(keeper);
  }
  ~SlabPoolTest() override {
    keeper_->Stop();
    pool_ = nullptr;
    EXPECT_EQ(device_.pinned_bytes(), 0);
  }

  SlabPool::Parts Parts(std::vector<SlabClass> classes) {
    return {.classes = std::move(classes),
            .numa_nodes = {},
            .pinners = {&device_},
            .keeper = keeper_,
            .log =
                [this](const LogLine& line) {
                  MutexLock lock(mutex_);
                  log_.push_back(line.message);
                },
            .least_pause = absl::Milliseconds(1),
            .most_pause = absl::Milliseconds(1),
            .retry_pause = absl::Milliseconds(1)};
  }
  void Start(SlabPool::Parts parts) {
    auto pool = SlabPool::Start(std::move(parts));
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
  }
  std::unique_ptr<Slab> Take(int64_t bytes) {
    auto slab = pool_->Take(bytes);
    EXPECT_TRUE(slab.ok()) << slab.status();
    return slab.ok() ? *std::move(slab) : nullptr;
  }
  void GiveBack(std::unique_ptr<Slab> slab) {
    pool_->GiveBack(std::move(slab), [] {});
  }
  std::vector<std::string> Log() {
    MutexLock lock(mutex_);
    return log_;
  }

  PinWatcher device_;
  std::shared_ptr<Keeper> keeper_;
  std::shared_ptr<SlabPool> pool_;
  Mutex mutex_;
  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(SlabPoolTest, TakesTheSmallestThatIsFreeAndLargeEnough) {
  Start(Parts({{2 * kMiB, 2}, {8 * kMiB, 1}}));
  EXPECT_EQ(pool_->largest_bytes(), 8 * kMiB);
  EXPECT_EQ(pool_->stats().free_bytes, 12 * kMiB);
  EXPECT_EQ(device_.pinned_bytes(), 12 * kMiB);
  const auto a = Take(1), b = Take(2 * kMiB), c = Take(2 * kMiB);
  EXPECT_EQ(a->bytes(), 2 * kMiB);
  EXPECT_EQ(b->bytes(), 2 * kMiB);
  EXPECT_EQ(c->bytes(), 8 * kMiB);
  EXPECT_EQ(pool_->stats().free_bytes, 0);
}

TEST_F(SlabPoolTest, SaysWhetherTryingAgainHelps) {
  Start(Parts({{2 * kMiB, 1}, {8 * kMiB, 1}}));
  auto large = Take(8 * kMiB);
  const absl::Status busy = pool_->Take(2 * kMiB + 1).status();
  EXPECT_TRUE(absl::IsResourceExhausted(busy)) << busy;
  EXPECT_TRUE(wire::RetryDelay(busy).has_value());
  const absl::Status never = pool_->Take(8 * kMiB + 1).status();
  EXPECT_TRUE(absl::IsInvalidArgument(never)) << never;
  EXPECT_FALSE(wire::RetryDelay(never).has_value());
  // Nobody has seen it: it is not replaced.
  const uint64_t file = FileNumber(large->descriptor());
  pool_->PutBack(std::move(large));
  EXPECT_EQ(FileNumber(Take(8 * kMiB)->descriptor()), file);
}

TEST_F(SlabPoolTest, ASlabThatIsGivenBackIsReplacedByAnother) {
  Start(Parts({{2 * kMiB, 1}}));
  auto slab = Take(kMiB);
  // As a client that keeps both for ever.
  const Descriptor passed(dup(slab->descriptor()));
  TestMapping client(passed.get(), 2 * kMiB);
  client.Fill(1);
  Notification back;
  pool_->GiveBack(std::move(slab), [&] { back.Notify(); });
  back.WaitForNotification();
  EXPECT_TRUE(client.IsAll(0));
  EXPECT_TRUE(Eventually([&] { return pool_->stats().replaced == 1; }));
  EXPECT_EQ(pool_->stats().free_bytes, 2 * kMiB);
  client.Fill(2);
  slab = Take(kMiB);
  EXPECT_NE(FileNumber(slab->descriptor()), FileNumber(passed.get()));
  const TestMapping next(slab->descriptor(), 2 * kMiB);
  EXPECT_TRUE(next.IsAll(0));
}

TEST_F(SlabPoolTest, OnlyTheKeeperPinsAfterTheStart) {
  Start(Parts({{2 * kMiB, 3}}));
  EXPECT_EQ(pool_->stats().pinned_at_start, 3);
  const size_t at_start = device_.pinned().size();
  EXPECT_EQ(at_start, 3);
  constexpr int kRounds = 5;
  for (int round = 1; round <= kRounds; ++round) {
    GiveBack(Take(1));
    EXPECT_TRUE(Eventually([&] { return pool_->stats().replaced == round; }));
  }
  std::thread::id keeper;
  Notification told;
  keeper_->Post([&] {
    keeper = std::this_thread::get_id();
    told.Notify();
  });
  told.WaitForNotification();
  const auto pinned = device_.pinned();
  ASSERT_EQ(pinned.size(), at_start + kRounds);
  for (size_t i = at_start; i < pinned.size(); ++i) {
    EXPECT_EQ(pinned[i].thread, keeper);
  }
  EXPECT_EQ(pool_->stats().pinned_by_keeper, kRounds);
}

TEST_F(SlabPoolTest, PausesBetweenPieces) {
  SlabPool::Parts parts = Parts({{2 * kMiB, 2}, {kPinnedPieceBytes * 2, 1}});
  parts.pause_factor = 20;
  parts.most_pause = absl::Hours(1);
  Start(std::move(parts));
  const size_t at_start = device_.pinned().size();
  device_.set_pin_time(absl::Milliseconds(1));
  auto a = Take(1), b = Take(1), c = Take(kPinnedPieceBytes * 2);
  GiveBack(std::move(a));
  GiveBack(std::move(c));
  GiveBack(std::move(b));
  EXPECT_TRUE(Eventually([&] { return pool_->stats().replaced == 3; }));
  device_.set_pin_time(absl::ZeroDuration());
  std::vector<absl::Time> times;
  const auto pinned = device_.pinned(), unpinned = device_.unpinned();
  for (size_t i = at_start; i < pinned.size(); ++i) {
    times.push_back(pinned[i].at);
  }
  for (const auto& one : unpinned) times.push_back(one.at);
  ASSERT_EQ(times.size(), 4 + 4);
  std::sort(times.begin(), times.end());
  for (size_t i = 1; i < times.size(); ++i) {
    EXPECT_GE(times[i] - times[i - 1], absl::Milliseconds(20));
  }
}

// Neither what was in it is seen for longer, nor does its client's limit wait.
TEST_F(SlabPoolTest, WhatIsGivenBackIsEmptiedThoughADeviceKeepsIt) {
  SlabPool::Parts parts = Parts({{kPinnedPieceBytes * 2, 1}});
  parts.pause_factor = 1'000'000;
  parts.most_pause = absl::Hours(1);
  Start(std::move(parts));
  device_.set_pin_time(absl::Milliseconds(4));
  auto slab = Take(1);
  const Descriptor passed(dup(slab->descriptor()));
  TestMapping client(passed.get(), kPinnedPieceBytes * 2);
  client.Fill(1);
  Notification back;
  pool_->GiveBack(std::move(slab), [&] { back.Notify(); });
  back.WaitForNotification();
  EXPECT_TRUE(client.IsAll(0));
  EXPECT_TRUE(Eventually([&] { return device_.unpinned().size() == 1; }));
  EXPECT_GT(device_.pinned_bytes(), 0);
  device_.set_pin_time(absl::ZeroDuration());
}

TEST_F(SlabPoolTest, ItsEndDoesNotWaitForAPause) {
  SlabPool::Parts parts = Parts({{2 * kMiB, 2}});
  parts.pause_factor = 1'000'000;
  parts.most_pause = absl::Hours(1);
  Start(std::move(parts));
  device_.set_pin_time(absl::Milliseconds(4));
  auto a = Take(1), b = Take(1);
  GiveBack(std::move(a));
  GiveBack(std::move(b));
  EXPECT_TRUE(Eventually([&] { return device_.unpinned().size() == 1; }));
  keeper_->Stop();
  EXPECT_EQ(device_.unpinned().size(), 1);
  device_.set_pin_time(absl::ZeroDuration());
}

TEST_F(SlabPoolTest, TriesAgainToMakeOneAndSaysSoOnce) {
  Start(Parts({{2 * kMiB, 1}}));
  const size_t before = device_.pinned().size();
  device_.set_pin_error(absl::ResourceExhaustedError("nothing may be pinned"));
  GiveBack(Take(1));
  EXPECT_TRUE(
      Eventually([&] { return device_.pinned().size() >= before + 5; }));
  EXPECT_EQ(pool_->stats().free_bytes, 0);
  EXPECT_THAT(Log(), ElementsAre(::testing::AllOf(
                         ::testing::HasSubstr("a region of 2097152 bytes"),
                         ::testing::HasSubstr("nothing may be pinned"))));
  device_.set_pin_error(absl::OkStatus());
  EXPECT_TRUE(Eventually([&] { return pool_->stats().replaced == 1; }));
  EXPECT_EQ(device_.pinned_bytes(), 2 * kMiB);
  EXPECT_EQ(Log().size(), 1);
}

TEST_F(SlabPoolTest, DoesNotStartWithoutItsMemory) {
  const int before = OpenDescriptors();
  device_.set_pin_error(absl::ResourceExhaustedError("nothing may be pinned"));
  const auto pool = SlabPool::Start(Parts({{2 * kMiB, 3}}));
  EXPECT_TRUE(absl::IsResourceExhausted(pool.status())) << pool.status();
  EXPECT_EQ(device_.pinned_bytes(), 0);
  EXPECT_EQ(OpenDescriptors(), before);
}

}  // namespace
}  // namespace attnd::server
