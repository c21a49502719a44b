#include "proto/wire/grpc_time.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "base/clock.h"

namespace attnd::wire {
namespace {

// Between the clock's readings here and there time passes, but it never goes
// back.
void ExpectLeft(gpr_timespec deadline, absl::Duration left) {
  const absl::Time before = MonotonicNow();
  const absl::Time converted = FromGrpcDeadline(deadline);
  const absl::Time after = MonotonicNow();
  EXPECT_LE(converted, after + left);
  EXPECT_GE(converted, before + left - absl::Minutes(1));
}

gpr_timespec SecondsFromNow(int64_t seconds, gpr_clock_type clock) {
  return gpr_time_add(gpr_now(clock),
                      gpr_time_from_seconds(seconds, GPR_TIMESPAN));
}

TEST(GrpcTimeTest, KeepsWhatIsLeft) {
  for (const gpr_clock_type clock : {GPR_CLOCK_MONOTONIC, GPR_CLOCK_REALTIME}) {
    ExpectLeft(SecondsFromNow(100, clock), absl::Seconds(100));
    ExpectLeft(SecondsFromNow(-100, clock), absl::Seconds(-100));
  }
}

TEST(GrpcTimeTest, KeepsTheLongestTimeout) {
  // grpc-timeout: 99999999H
  constexpr int64_t kHours = 99'999'999;
  ExpectLeft(SecondsFromNow(kHours * 3600, GPR_CLOCK_MONOTONIC),
             absl::Hours(kHours));
}

TEST(GrpcTimeTest, NoDeadlineIsInfinite) {
  EXPECT_EQ(FromGrpcDeadline(gpr_inf_future(GPR_CLOCK_MONOTONIC)),
            absl::InfiniteFuture());
  EXPECT_EQ(FromGrpcDeadline(gpr_inf_future(GPR_CLOCK_REALTIME)),
            absl::InfiniteFuture());
  const gpr_timespec none = ToGrpcDeadline(absl::InfiniteFuture());
  EXPECT_EQ(gpr_time_cmp(none, gpr_inf_future(none.clock_type)), 0);
}

TEST(GrpcTimeTest, ComesBackAsItWent) {
  for (const absl::Duration left :
       {absl::Seconds(100), absl::Seconds(-100), absl::Milliseconds(1500)}) {
    const gpr_timespec deadline = ToGrpcDeadline(MonotonicNow() + left);
    EXPECT_EQ(deadline.clock_type, GPR_CLOCK_MONOTONIC);
    ExpectLeft(deadline, left);
  }
}

}  // namespace
}  // namespace attnd::wire
