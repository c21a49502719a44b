#include "server/identity/call_rates.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace attnd::server {
namespace {

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);
constexpr absl::Duration kNow = absl::ZeroDuration();

TEST(CallRates, AsManyAtOnceAsASecondAllowsAndThenOneAfterTheOther) {
  for (const double rate : {1.0, 2.5, 3.0, 7.0, 100.0, 1234.0}) {
    CallRates rates;
    int calls = 0;
    while (rates.Take("a", rate, kStart) == kNow) ++calls;
    EXPECT_EQ(calls, static_cast<int>(rate)) << rate;
    const absl::Duration wait = rates.Take("a", rate, kStart);
    EXPECT_GT(wait, kNow);
    EXPECT_LE(wait, absl::Seconds(1.1 / rate));
    EXPECT_EQ(rates.Take("a", rate, kStart + wait), kNow) << rate;
    EXPECT_NE(rates.Take("a", rate, kStart + wait), kNow) << rate;
  }
}

TEST(CallRates, NeverMoreOverTimeThanTheRateAndOneSecondsBurst) {
  CallRates rates;
  int calls = 0;
  for (int ms = 0; ms < 10'000; ++ms) {
    calls += rates.Take("a", 20, kStart + absl::Milliseconds(ms)) == kNow;
  }
  EXPECT_GE(calls, 219);
  EXPECT_LE(calls, 220);
}

TEST(CallRates, LessThanOneASecond) {
  CallRates rates;
  EXPECT_EQ(rates.Take("a", 0.1, kStart), kNow);
  EXPECT_EQ(rates.Take("a", 0.1, kStart), absl::Seconds(10));
  EXPECT_EQ(rates.Take("a", 0.1, kStart + absl::Seconds(4)), absl::Seconds(6));
  EXPECT_EQ(rates.Take("a", 0.1, kStart + absl::Seconds(10)), kNow);
}

TEST(CallRates, ARateThatIsRaisedCountsAtOnce) {
  CallRates rates;
  EXPECT_EQ(rates.Take("a", 0.001, kStart), kNow);
  const absl::Duration wait = rates.Take("a", 10, kStart);
  EXPECT_LE(wait, absl::Milliseconds(107));
  EXPECT_EQ(rates.Take("a", 10, kStart + wait), kNow);
}

TEST(CallRates, ClientsDoNotPayForEachOther) {
  CallRates rates;
  EXPECT_EQ(rates.Take("a", 1, kStart), kNow);
  EXPECT_EQ(rates.Take("b", 1, kStart), kNow);
  EXPECT_NE(rates.Take("a", 1, kStart), kNow);
}

TEST(CallRates, RemembersTheLastClientsOnly) {
  CallRates rates;
  EXPECT_EQ(rates.Take("first", 1, kStart), kNow);
  for (size_t i = 0; i + 1 < CallRates::kRemembered; ++i) {
    ASSERT_EQ(rates.Take(absl::StrCat("flood", i), 1, kStart), kNow);
  }
  EXPECT_NE(rates.Take("first", 1, kStart), kNow) << "it is remembered yet";
  EXPECT_NE(rates.Take("flood0", 1, kStart), kNow);
  EXPECT_EQ(rates.Take("another", 1, kStart), kNow);
  EXPECT_EQ(rates.Take("flood1", 1, kStart), kNow) << "it was longest ago";
}

}  // namespace
}  // namespace attnd::server
