#include "server/front/upload_room.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"

namespace attnd::server {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Upload = UploadRoom::Upload;

constexpr int64_t kMiB = 1 << 20;
// Room for two of the largest messages.
constexpr UploadLimits kLimits = {8 * kMiB, kMiB, 4 * kMiB, 64};
constexpr int64_t kPlenty = 8 * kMiB;  // of the heap

class UploadRoomTest : public ::testing::Test {
 protected:
  // Each client has a connection of its own.
  std::unique_ptr<Upload> Enter(const std::string& client,
                                std::optional<int64_t> hint = std::nullopt) {
    return EnterOn(client, client, hint);
  }
  std::unique_ptr<Upload> EnterOn(const std::string& client,
                                  const std::string& connection,
                                  std::optional<int64_t> hint,
                                  std::optional<int64_t> most = std::nullopt) {
    auto upload = room_.Enter(
        {client, connection}, hint,
        [this, client](const absl::Status& status) {
          (status.ok() ? granted_ : refused_).push_back(client);
        },
        most);
    status_ = upload.status();
    return upload.ok() ? *std::move(upload) : nullptr;
  }
  // The connection has sent a message of `bytes`.
  void Sent(const std::string& client, int64_t bytes) {
    const auto upload = Enter(client);
    ASSERT_TRUE(upload->granted());
    ASSERT_TRUE(upload->Arrived(bytes).ok());
  }

  UploadRoom room_{kLimits};
  std::vector<std::string> granted_, refused_;  // those that had to wait
  absl::Status status_;
};

// Streams that say nothing, of which the first message is short whatever they
// say of it, make nobody else wait for the largest possible.
TEST_F(UploadRoomTest, AMessageThatMayNotBeLongHoldsNoMoreThanItMay) {
  const auto unknown = EnterOn("a", "a1", std::nullopt, kMiB);
  EXPECT_EQ(room_.stats().reserved_bytes, UploadRoom::kSmallBytes);
  EXPECT_TRUE(unknown->Late(kPlenty).ok());
  EXPECT_EQ(room_.stats().reserved_bytes, kMiB);
  EXPECT_EQ(unknown->late_after(), std::nullopt);

  // Its client said too little, and is not believed any more.
  EXPECT_FALSE(EnterOn("b", "b1", 100, kMiB)->Arrived(200).ok());
  const auto distrusted = EnterOn("b", "b2", 100, kMiB);
  EXPECT_TRUE(distrusted->granted());
  EXPECT_EQ(room_.stats().reserved_bytes, 2 * kMiB);

  // What is left is enough for others.
  EXPECT_TRUE(Enter("c", 4 * kMiB)->granted());
}

TEST_F(UploadRoomTest, AMessageHoldsWhatItsHintSays) {
  const auto upload = Enter("a", 3 * kMiB);
  EXPECT_TRUE(upload->granted());
  EXPECT_EQ(upload->late_after(), std::nullopt);
  EXPECT_EQ(upload->hint(), 3 * kMiB);
  EXPECT_EQ(room_.stats().reserved_bytes, 3 * kMiB);
}

TEST_F(UploadRoomTest, WhatItDoesNotNeedItGivesBackWhenItIsHere) {
  Sent("a", 2 * kMiB);
  const auto upload = Enter("a");
  EXPECT_EQ(room_.stats().reserved_bytes, kLimits.max_message_bytes);
  EXPECT_TRUE(upload->Arrived(kMiB).ok());
  EXPECT_EQ(room_.stats().reserved_bytes, kMiB);
}

TEST_F(UploadRoomTest, AllOfItComesBack) {
  {
    const auto a = Enter("a", kMiB), b = Enter("b", 10), c = Enter("c");
    EXPECT_GT(room_.stats().reserved_bytes, kMiB);
  }
  EXPECT_EQ(room_.stats().reserved_bytes, 0);
}

TEST_F(UploadRoomTest, WhatFindsNoRoomWaitsForIt) {
  auto a = Enter("a", 4 * kMiB), b = Enter("b", 4 * kMiB);
  const auto c = Enter("c", kMiB);
  EXPECT_FALSE(c->granted());
  EXPECT_EQ(room_.stats().waiting, 1);
  EXPECT_THAT(granted_, IsEmpty());
  a.reset();
  EXPECT_TRUE(c->granted());
  EXPECT_THAT(granted_, ElementsAre("c"));
  EXPECT_EQ(room_.stats().waiting, 0);
}

TEST_F(UploadRoomTest, ALargeOneIsNotPassedBySmallerOnesForEver) {
  auto a = Enter("a", 4 * kMiB), b = Enter("b", 2 * kMiB);
  const auto large = Enter("c", 4 * kMiB);
  const auto smaller = Enter("d", kMiB);
  EXPECT_FALSE(large->granted());
  EXPECT_FALSE(smaller->granted()) << "2 MiB are free, but it is c's turn";
  b.reset();
  EXPECT_THAT(granted_, ElementsAre("c"));
  a.reset();
  EXPECT_THAT(granted_, ElementsAre("c", "d"));
}

TEST_F(UploadRoomTest, ClientsTakeTurns) {
  auto held = Enter("x", 4 * kMiB), also = Enter("y", 4 * kMiB);
  std::vector<std::unique_ptr<Upload>> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(Enter("a", 2 * kMiB));
  waiting.push_back(Enter("b", 2 * kMiB));
  held.reset();
  EXPECT_THAT(granted_, ElementsAre("a", "b"));
}

// One client may hold eight times what is left: 7 of 8 MiB, say, and then no
// more.
TEST_F(UploadRoomTest, AClientWhoseShareIsUsedUpIsPassedOver) {
  std::vector<std::unique_ptr<Upload>> held;
  for (int i = 0; i < 15; ++i) held.push_back(Enter("a", kMiB / 2));
  const auto more = Enter("a", 100 << 10);
  EXPECT_FALSE(more->granted());
  EXPECT_TRUE(Enter("b", 100 << 10)->granted());
}

TEST_F(UploadRoomTest, SmallOnesDoNotWaitBehindLargeOnes) {
  Sent("p", 10);
  const auto a = Enter("a", 4 * kMiB), b = Enter("b", 4 * kMiB);
  const auto c = Enter("c", 4 * kMiB);
  EXPECT_FALSE(c->granted());
  const auto hinted = Enter("d", 1000), unhinted = Enter("p");
  EXPECT_TRUE(hinted->granted());
  EXPECT_NE(hinted->late_after(), std::nullopt);
  EXPECT_TRUE(unhinted->granted());
  EXPECT_NE(unhinted->late_after(), std::nullopt);
}

TEST_F(UploadRoomTest, AConnectionThatHasSentALargeOneIsTakenToSendAnother) {
  Sent("a", kMiB);
  EXPECT_EQ(Enter("a")->late_after(), std::nullopt);
  Sent("a", 10);
  EXPECT_NE(Enter("a")->late_after(), std::nullopt);
  EXPECT_NE(Enter("a", 10)->late_after(), std::nullopt)
      << "a hint counts for more";
}

TEST_F(UploadRoomTest, AConnectionsFirstHasLessTimeToBeSmall) {
  EXPECT_EQ(Enter("a", 10)->late_after(), UploadRoom::kProbeTime);
  Sent("a", 10);
  EXPECT_EQ(Enter("a", 10)->late_after(), UploadRoom::kSmallTime);
}

TEST_F(UploadRoomTest, FewThatHaveProvenNothingSendAtOnceAndOthersBesideThem) {
  Sent("old", 10);
  std::vector<std::unique_ptr<Upload>> probes;
  for (int i = 0; i < UploadRoom::kProbes; ++i) {
    probes.push_back(Enter(absl::StrCat("new", i), 10));
  }
  const auto another = Enter("another", 10);
  EXPECT_FALSE(another->granted());
  EXPECT_TRUE(Enter("old")->granted());
  EXPECT_TRUE(probes[0]->Arrived(10).ok());
  EXPECT_THAT(granted_, ElementsAre("another"));
}

TEST_F(UploadRoomTest, WhatWaitsOfAConnectionIsProvenWithItsFirst) {
  std::vector<std::unique_ptr<Upload>> uploads;
  for (int i = 0; i < 40; ++i) uploads.push_back(Enter("a", 10));
  EXPECT_FALSE(uploads.back()->granted());
  EXPECT_TRUE(uploads[0]->Arrived(10).ok());
  EXPECT_TRUE(uploads.back()->granted());
}

TEST_F(UploadRoomTest, OneClientHasFewerOfThem) {
  std::vector<std::unique_ptr<Upload>> probes;
  for (int i = 0; i <= UploadRoom::kProbesPerClient; ++i) {
    probes.push_back(EnterOn("a", absl::StrCat(i), std::nullopt));
  }
  EXPECT_FALSE(probes.back()->granted());
  EXPECT_TRUE(Enter("b")->granted());
}

// Or many new connections at once could each bring a large message.
TEST_F(UploadRoomTest, NothingIsProvenWhileLargeOnesHoldTooMuch) {
  const auto a = Enter("a", 4 * kMiB), b = Enter("b", 4 * kMiB);
  auto first = Enter("c");
  ASSERT_TRUE(first->granted());
  EXPECT_TRUE(first->Arrived(3 * kMiB).ok());
  EXPECT_EQ(room_.stats().reserved_bytes, 11 * kMiB);
  const auto second = Enter("d");
  EXPECT_FALSE(second->granted());
  first.reset();
  EXPECT_TRUE(second->granted());
}

TEST_F(UploadRoomTest, AHintTooLowIsRefusedAndNotBelievedAgain) {
  const auto upload = Enter("a", 1000);
  const absl::Status status = upload->Arrived(1001);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorField(status), "attnd-request-bytes");
  const auto next = EnterOn("a", "new", 1000);
  EXPECT_EQ(next->hint(), std::nullopt);
  EXPECT_EQ(next->late_after(), std::nullopt);
  EXPECT_EQ(Enter("b", 1000)->hint(), 1000);
}

TEST_F(UploadRoomTest, AHintTooHighDoesNoHarm) {
  const auto upload = Enter("a", 2 * kMiB);
  EXPECT_TRUE(upload->Arrived(0).ok());
  EXPECT_EQ(room_.stats().reserved_bytes, UploadRoom::kLeastBytes);
}

TEST_F(UploadRoomTest, MoreThanAnyMessageMayHaveIsRefusedForGood) {
  EXPECT_EQ(Enter("a", kLimits.max_message_bytes + 1), nullptr);
  EXPECT_EQ(status_.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(wire::RetryDelay(status_), std::nullopt);
}

TEST_F(UploadRoomTest, ASmallOneThatTakesLongCountsAsTheLargest) {
  const auto upload = Enter("a");
  EXPECT_TRUE(upload->Late(kPlenty).ok());
  EXPECT_EQ(upload->late_after(), std::nullopt);
  EXPECT_EQ(room_.stats().reserved_bytes, kLimits.max_message_bytes);
  EXPECT_EQ(Enter("a")->late_after(), std::nullopt);
}

TEST_F(UploadRoomTest, ASmallOneThatTakesLongIsRefusedWhereThereIsNoRoom) {
  const auto a = Enter("a", 4 * kMiB), b = Enter("b", 4 * kMiB);
  const auto upload = Enter("c");
  const absl::Status status = upload->Late(kPlenty);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(wire::RetryDelay(status), std::nullopt);
  EXPECT_EQ(room_.stats().refused, 1);
}

// A slow server, say, with a thousand small messages to read.
TEST_F(UploadRoomTest, OneOfAKnownLengthMayTakeLongWhileNoOtherWaits) {
  const auto a = Enter("a", 4 * kMiB), b = Enter("b", 4 * kMiB);
  std::vector<std::unique_ptr<Upload>> probes;
  for (int i = 0; i < UploadRoom::kProbes; ++i) {
    probes.push_back(Enter(absl::StrCat("new", i), 10));
  }
  EXPECT_TRUE(probes[0]->Late(kPlenty).ok());
  EXPECT_EQ(probes[0]->late_after(), UploadRoom::kProbeTime);
}

// The same server, while others wait for what it holds.
TEST_F(UploadRoomTest, OneOfAKnownLengthHasMoreTimeOnce) {
  const auto a = Enter("a", 4 * kMiB), b = Enter("b", 4 * kMiB);
  const auto late = Enter("c", 10);
  const auto second = EnterOn("c", "second", 10);
  ASSERT_FALSE(second->granted());
  EXPECT_TRUE(late->Late(kPlenty).ok());
  EXPECT_EQ(late->late_after(), UploadRoom::kProbeTime);
  EXPECT_TRUE(second->granted()) << "the other one is no probe any more";
  EXPECT_TRUE(late->Late(kPlenty).ok()) << "nobody waits for what it holds";
  const auto third = EnterOn("c", "third", 10);
  EXPECT_EQ(third->hint(), 10) << "its client is believed as before";
  const absl::Status status = late->Late(kPlenty);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(wire::RetryDelay(status), std::nullopt);
  EXPECT_EQ(EnterOn("c", "fourth", 10)->hint(), std::nullopt);
}

TEST_F(UploadRoomTest, OneOfAKnownLengthHasNoMoreTimeWhereMemoryIsScarce) {
  const auto a = Enter("a", 4 * kMiB), b = Enter("b", 4 * kMiB);
  const auto late = Enter("c", 10);
  const auto waits = EnterOn("c", "second", 10);
  EXPECT_EQ(late->Late(kPlenty - 1).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(UploadRoomTest, GivingUpIsARefusalWithADelay) {
  const auto a = Enter("a", 4 * kMiB), b = Enter("b", 4 * kMiB);
  const auto c = Enter("c", 4 * kMiB);
  const absl::Status status = c->GiveUp();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(wire::RetryDelay(status), std::nullopt);
  EXPECT_EQ(room_.stats().waiting, 0);
  EXPECT_TRUE(a->GiveUp().ok()) << "it has been granted";
}

TEST_F(UploadRoomTest, TooManyThatWaitAreRefused) {
  const auto a = Enter("a", 4 * kMiB), b = Enter("b", 4 * kMiB);
  std::vector<std::unique_ptr<Upload>> waiting;
  for (int i = 0; i < kLimits.max_waiting; ++i) {
    waiting.push_back(Enter(absl::StrCat(i), 4 * kMiB));
    ASSERT_NE(waiting.back(), nullptr);
  }
  EXPECT_EQ(Enter("c", 4 * kMiB), nullptr);
  EXPECT_EQ(status_.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(wire::RetryDelay(status_), std::nullopt);
}

// One that floods takes nobody else's place in the queue, nor has it less than
// others.
TEST_F(UploadRoomTest, WhoHasMostThatWaitMakesWayForOthers) {
  const auto a = Enter("a", 4 * kMiB), b = Enter("b", 4 * kMiB);
  std::vector<std::unique_ptr<Upload>> flood;
  for (int i = 0; i < kLimits.max_waiting; ++i) {
    flood.push_back(Enter("flood", 4 * kMiB));
    ASSERT_NE(flood.back(), nullptr) << i;
  }
  EXPECT_EQ(Enter("flood", 4 * kMiB), nullptr);
  EXPECT_THAT(refused_, IsEmpty());
  std::vector<std::unique_ptr<Upload>> others;
  for (int i = 0; i < kLimits.max_waiting / 2; ++i) {
    others.push_back(Enter("other", 4 * kMiB));
    ASSERT_NE(others.back(), nullptr) << i;
    EXPECT_EQ(refused_.size(), i + 1);
  }
  EXPECT_THAT(refused_, Each("flood"));
  EXPECT_EQ(room_.stats().waiting, kLimits.max_waiting);
  EXPECT_EQ(Enter("other", 4 * kMiB), nullptr) << "both have as many";
  EXPECT_NE(Enter("third", 4 * kMiB), nullptr);
  // Those that came last are the ones that went.
  EXPECT_FALSE(flood.back()->granted());
  EXPECT_TRUE(flood.back()->GiveUp().ok()) << "it has been decided";
  EXPECT_FALSE(flood.front()->GiveUp().ok());
}

TEST_F(UploadRoomTest, OneThatLeavesTheQueueIsNotTold) {
  auto a = Enter("a", 4 * kMiB), b = Enter("b", 4 * kMiB);
  auto c = Enter("c", 4 * kMiB);
  const auto d = Enter("d", 4 * kMiB);
  c.reset();
  a.reset();
  EXPECT_THAT(granted_, ElementsAre("d"));
}

TEST_F(UploadRoomTest, ClosingRefusesWhoWaitsAndWhoComes) {
  const auto a = Enter("a", 4 * kMiB), b = Enter("b", 4 * kMiB);
  const auto c = Enter("c", 4 * kMiB);
  room_.Close();
  EXPECT_THAT(refused_, ElementsAre("c"));
  EXPECT_FALSE(c->granted());
  EXPECT_EQ(Enter("d", 10), nullptr);
  EXPECT_EQ(status_.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(a->Arrived(kMiB).ok()) << "what was granted goes on";
}

}  // namespace
}  // namespace attnd::server
