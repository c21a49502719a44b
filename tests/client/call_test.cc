#include "client/call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/wire/status.h"
#include "tests/client/fake_transport.h"
#include "tests/client/manual_executor.h"

namespace attnd::client {
namespace {

constexpr absl::Duration kLong = absl::Hours(1);

class CallTest : public ::testing::Test {
 protected:
  struct Outcome {
    absl::Status status;
    int attempts = 0;
  };

  std::shared_ptr<Call> Start(absl::Duration timeout = kLong) {
    CallSpec spec;
    spec.method = "/a.B/C";
    spec.pieces.resize(1);
    spec.pieces[0].owned = "header";
    spec.pieces[0].borrowed = caller_memory_;
    spec.headers.deadline = executor_.Now() + timeout;
    spec.decode = [this](absl::Span<const absl::string_view> fragments) {
      response_.clear();
      for (const absl::string_view fragment : fragments) {
        response_.append(fragment.data(), fragment.size());
      }
      return decode_status_;
    };
    spec.done = [this](absl::Status status, const CallStats& stats) {
      ASSERT_FALSE(outcome_.has_value()) << "done twice";
      outcome_ = {std::move(status), stats.attempts};
    };
    return Call::Start(std::move(spec),
                       {transport_, executor_, budget_, policy_});
  }

  void Answer(size_t index, absl::Status status) {
    ASSERT_LT(index, transport_.size());
    transport_.Answer(index, Transport::Result(std::move(status)));
  }

  std::string caller_memory_ = "tensor";
  ManualExecutor executor_;
  FakeTransport transport_;
  RetryBudget budget_{0.2};
  RetryPolicy policy_;
  std::string response_;
  absl::Status decode_status_;
  std::optional<Outcome> outcome_;
};

TEST_F(CallTest, SendsThePiecesAndDecodesTheResponseOnTheExecutor) {
  Start(absl::Seconds(7));
  ASSERT_EQ(transport_.size(), 1);
  EXPECT_EQ(transport_.at(0).method, "/a.B/C");
  EXPECT_EQ(transport_.at(0).Bytes(), "headertensor");
  EXPECT_EQ(transport_.at(0).headers.deadline,
            executor_.Now() + absl::Seconds(7));
  transport_.Answer(0, "answer");
  EXPECT_FALSE(outcome_.has_value()) << "ran on the transport's thread";
  executor_.RunReady();
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_TRUE(outcome_->status.ok());
  EXPECT_EQ(outcome_->attempts, 1);
  EXPECT_EQ(response_, "answer");
}

TEST_F(CallTest, ReturnsWhatDecodingSaysAndDoesNotTryAgain) {
  decode_status_ = absl::UnavailableError("not serving");
  Start();
  transport_.Answer(0, "answer");
  executor_.Advance(kLong);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->status, decode_status_);
  EXPECT_EQ(transport_.size(), 1);
}

TEST_F(CallTest, IsDoneOnlyOnceTheTransportHasLetGoOfThePieces) {
  Start();
  executor_.Advance(2 * kLong);  // far past the deadline
  EXPECT_FALSE(outcome_.has_value());
  EXPECT_EQ(transport_.at(0).Bytes(), "headertensor");
  Answer(0, absl::DeadlineExceededError(""));
  executor_.RunReady();
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome_->status));
}

TEST_F(CallTest, TriesUnavailableAgainWithTheSamePieces) {
  Start();
  const auto* pieces = transport_.at(0).pieces;
  Answer(0, absl::UnavailableError("gone"));
  executor_.RunReady();
  EXPECT_EQ(transport_.size(), 1) << "no backoff";
  executor_.Advance(policy_.initial_backoff);
  ASSERT_EQ(transport_.size(), 2);
  EXPECT_EQ(transport_.at(1).pieces, pieces);
  EXPECT_EQ(transport_.at(1).Bytes(), "headertensor");
  transport_.Answer(1, "answer");
  executor_.RunReady();
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_TRUE(outcome_->status.ok());
  EXPECT_EQ(outcome_->attempts, 2);
}

TEST_F(CallTest, GivesTheLastStatusAfterAllAttempts) {
  Start();
  for (int i = 0; i < policy_.max_attempts; ++i) {
    ASSERT_EQ(transport_.size(), i + 1);
    EXPECT_FALSE(outcome_.has_value());
    Answer(i, absl::UnavailableError(std::string(1, 'a' + i)));
    executor_.Advance(policy_.max_backoff);
  }
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->status, absl::UnavailableError("d"));
  EXPECT_EQ(outcome_->attempts, 4);
  EXPECT_EQ(transport_.size(), 4);
}

TEST_F(CallTest, StopsWhenTheBudgetOfRetriesIsSpent) {
  while (budget_.TakeRetry()) {
  }
  Start();
  Answer(0, absl::UnavailableError("gone"));
  executor_.Advance(kLong);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->attempts, 1);
}

TEST_F(CallTest, DoesNotWaitForAnAttemptThatWouldStartPastTheDeadline) {
  Start(absl::Seconds(1));
  Answer(0, wire::WithRetryInfo(absl::ResourceExhaustedError("full"),
                                absl::Seconds(1)));
  executor_.RunReady();
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(outcome_->status));
  EXPECT_EQ(executor_.timers(), 0);
}

TEST_F(CallTest, NeverSendsAfterItsDeadline) {
  Start(absl::ZeroDuration());
  EXPECT_EQ(transport_.size(), 0);
  executor_.RunReady();
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome_->status));
  EXPECT_EQ(outcome_->attempts, 0);
}

TEST_F(CallTest, CancellingReachesTheAttemptAndPreventsMore) {
  const auto call = Start();
  call->Cancel();
  EXPECT_TRUE(transport_.at(0).cancelled);
  EXPECT_FALSE(outcome_.has_value()) << "the transport still has the pieces";
  // The attempt may fail for another reason first.
  Answer(0, absl::UnavailableError("gone"));
  executor_.Advance(kLong);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(transport_.size(), 1);
}

TEST_F(CallTest, CancellingWhileItWaitsEndsItAtOnce) {
  const auto call = Start();
  Answer(0, absl::UnavailableError("gone"));
  executor_.RunReady();
  ASSERT_FALSE(outcome_.has_value());
  call->Cancel();
  call->Cancel();
  executor_.RunReady();
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_TRUE(absl::IsCancelled(outcome_->status));
  executor_.Advance(kLong);
  EXPECT_EQ(transport_.size(), 1);
}

TEST_F(CallTest, CancellingLateDoesNothing) {
  const auto call = Start();
  transport_.Answer(0, "answer");
  executor_.RunReady();
  ASSERT_TRUE(outcome_.has_value());
  call->Cancel();
  EXPECT_EQ(executor_.RunReady(), 0);
  EXPECT_FALSE(transport_.at(0).cancelled);
}

TEST_F(CallTest, CancellingReachesTheLatestAttempt) {
  const auto call = Start();
  Answer(0, absl::UnavailableError("gone"));
  executor_.Advance(policy_.max_backoff);
  ASSERT_EQ(transport_.size(), 2);
  call->Cancel();
  EXPECT_TRUE(transport_.at(1).cancelled);
  EXPECT_FALSE(transport_.at(0).cancelled);
}

TEST_F(CallTest, AnswersInsideStartAreFine) {
  int attempts = 0;
  transport_.answer = [&](const FakeTransport::Attempt&) -> Transport::Result {
    if (++attempts < 3) return absl::UnavailableError("gone");
    return std::make_unique<FakeResponse>("answer");
  };
  Start();
  executor_.Advance(kLong);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_TRUE(outcome_->status.ok());
  EXPECT_EQ(outcome_->attempts, 3);
}

// Cancelling from another thread, at whatever moment, ends every call once.
TEST(CallRaceTest, CancelRacesWithAnswers) {
  for (int round = 0; round < 200; ++round) {
    FakeTransport transport;
    transport.answer = [&](const FakeTransport::Attempt&) -> Transport::Result {
      if (transport.size() % 2 == 1) return absl::UnavailableError("gone");
      return std::make_unique<FakeResponse>("answer");
    };
    RetryBudget budget(1);
    TaskQueue queue;
    int done = 0;
    CallSpec spec;
    spec.decode = [](absl::Span<const absl::string_view>) {
      return absl::OkStatus();
    };
    spec.done = [&](absl::Status status, const CallStats&) {
      ++done;
      EXPECT_TRUE(status.ok() || absl::IsCancelled(status) ||
                  absl::IsUnavailable(status))
          << status;
    };
    RetryPolicy policy;
    policy.initial_backoff = absl::Microseconds(1);
    const auto call =
        Call::Start(std::move(spec), {transport, queue, budget, policy});
    std::thread canceller([&] { call->Cancel(); });
    while (done == 0) queue.RunOne();
    canceller.join();
    EXPECT_EQ(done, 1);
  }
}

}  // namespace
}  // namespace attnd::client
