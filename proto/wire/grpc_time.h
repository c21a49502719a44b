#ifndef ATTND_PROTO_WIRE_GRPC_TIME_H_
#define ATTND_PROTO_WIRE_GRPC_TIME_H_

// Deadlines of MonotonicNow() as gRPC has them, and back, without a look at the
// wall clock. No deadline is InfiniteFuture here and gpr_inf_future there.

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace attnd::wire {

// Of a deadline on a clock that can be set: as much as is left of it now.
absl::Time FromGrpcDeadline(gpr_timespec deadline);

gpr_timespec ToGrpcDeadline(absl::Time deadline);

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_GRPC_TIME_H_
