#include "client/retry.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "proto/wire/status.h"

namespace attnd::client {
namespace {

using absl::Milliseconds;
using absl::Seconds;

constexpr absl::Duration kLong = absl::Hours(1);

RetryPolicy Policy() { return {4, Milliseconds(50), Milliseconds(300)}; }

absl::Status Unavailable() { return absl::UnavailableError("gone"); }
absl::Status Full(absl::Duration delay) {
  return wire::WithRetryInfo(absl::ResourceExhaustedError("full"), delay);
}

TEST(RetryDelayTest, OnlyUnavailableAndDelayedExhaustionAreRetried) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status plain(static_cast<absl::StatusCode>(code), "x");
    EXPECT_EQ(IsRetryable(plain), absl::IsUnavailable(plain)) << plain;
    const absl::Status delayed = wire::WithRetryInfo(plain, Seconds(1));
    EXPECT_EQ(IsRetryable(delayed),
              absl::IsUnavailable(plain) || absl::IsResourceExhausted(plain))
        << plain;
    EXPECT_EQ(RetryDelay(Policy(), plain, 1, kLong, 0).has_value(),
              IsRetryable(plain));
  }
}

TEST(RetryDelayTest, BackoffDoublesUpToItsLimit) {
  // With no randomness in it: the upper end.
  RetryPolicy policy = Policy();
  policy.max_attempts = 100;
  const double almost_one = 1 - 1e-12;
  for (const auto& [attempt, backoff] : std::vector<std::pair<int, int>>{
           {1, 50}, {2, 100}, {3, 200}, {4, 300}, {5, 300}, {99, 300}}) {
    const auto delay =
        RetryDelay(policy, Unavailable(), attempt, kLong, almost_one);
    ASSERT_TRUE(delay.has_value());
    EXPECT_LE(*delay, Milliseconds(backoff));
    EXPECT_GT(*delay, Milliseconds(backoff) * 0.999);
    EXPECT_EQ(*RetryDelay(policy, Unavailable(), attempt, kLong, 0),
              Milliseconds(backoff) / 2);
  }
}

TEST(RetryDelayTest, StopsAfterTheLastAttempt) {
  EXPECT_TRUE(RetryDelay(Policy(), Unavailable(), 3, kLong, 0).has_value());
  EXPECT_FALSE(RetryDelay(Policy(), Unavailable(), 4, kLong, 0).has_value());
}

TEST(RetryDelayTest, NeverEarlierThanTheServerAsks) {
  for (const double random : {0.0, 0.5, 0.999}) {
    const auto delay = RetryDelay(Policy(), Full(Seconds(2)), 1, kLong, random);
    ASSERT_TRUE(delay.has_value());
    EXPECT_GE(*delay, Seconds(2));
    EXPECT_LE(*delay, Seconds(2) + Milliseconds(50));
  }
}

TEST(RetryDelayTest, AServersDelayMayBeZeroOrNonsense) {
  for (const absl::Duration asked : {absl::ZeroDuration(), -Seconds(5)}) {
    const auto delay = RetryDelay(Policy(), Full(asked), 1, kLong, 0.5);
    ASSERT_TRUE(delay.has_value());
    EXPECT_GE(*delay, absl::ZeroDuration());
  }
  EXPECT_FALSE(RetryDelay(Policy(), Full(absl::Hours(100)), 1,
                          absl::InfiniteDuration(), 0)
                   .has_value());
}

TEST(RetryDelayTest, GivesUpWhenTheDeadlineComesFirst) {
  EXPECT_FALSE(
      RetryDelay(Policy(), Unavailable(), 1, Milliseconds(25), 0).has_value());
  EXPECT_TRUE(
      RetryDelay(Policy(), Unavailable(), 1, Milliseconds(26), 0).has_value());
  EXPECT_FALSE(
      RetryDelay(Policy(), Full(Seconds(2)), 1, Seconds(2), 0).has_value());
  EXPECT_FALSE(RetryDelay(Policy(), Unavailable(), 1, -Seconds(1), 0));
}

TEST(RetryBudgetTest, KeepsRetriesToItsShareOfCalls) {
  RetryBudget budget(0.25);
  int retries = 0;
  for (int call = 0; call < 1000; ++call) {
    budget.AddCall();
    retries += budget.TakeRetry();
  }
  EXPECT_LE(retries, 250 + RetryBudget::kCapacity);
  EXPECT_GE(retries, 250);
}

TEST(RetryBudgetTest, AQuietTimeSavesUpNoMoreThanItsCapacity) {
  RetryBudget budget(1);
  for (int call = 0; call < 1000; ++call) budget.AddCall();
  int retries = 0;
  while (budget.TakeRetry()) ++retries;
  EXPECT_EQ(retries, RetryBudget::kCapacity);
}

TEST(RetryBudgetTest, AShareOfZeroEndsWithTheFirstAllowance) {
  RetryBudget budget(0);
  int retries = 0;
  for (int call = 0; call < 1000; ++call) {
    budget.AddCall();
    retries += budget.TakeRetry();
  }
  EXPECT_EQ(retries, RetryBudget::kCapacity);
}

}  // namespace
}  // namespace attnd::client
