#include "proto/wire/grpc_time.h"

#include <cstdint>

#include "base/clock.h"

namespace attnd::wire {

absl::Time FromGrpcDeadline(gpr_timespec deadline) {
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
    return absl::InfiniteFuture();
  }
  const gpr_timespec left =
      gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  return MonotonicNow() + absl::Seconds(left.tv_sec) +
         absl::Nanoseconds(left.tv_nsec);
}

gpr_timespec ToGrpcDeadline(absl::Time deadline) {
  // Both saturate: what is infinite stays so.
  const int64_t left_ns = absl::ToInt64Nanoseconds(deadline - MonotonicNow());
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(left_ns, GPR_TIMESPAN));
}

}  // namespace attnd::wire
