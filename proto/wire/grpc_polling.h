#ifndef ATTND_PROTO_WIRE_GRPC_POLLING_H_
#define ATTND_PROTO_WIRE_GRPC_POLLING_H_

namespace attnd::wire {

// Has the thread of each completion queue poll the connections of that queue.
// gRPC (1.51) would have one thread poll all that the process has, in turn with
// the others, which then wait for each other at several connections. It knows
// this by the environment's GRPC_POLL_STRATEGY alone, which is left as it is
// where a user has set it. Programs inherit it.
//
// For the whole process, so for programs only: before it has threads and before
// it uses gRPC.
void PollByQueue();

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_GRPC_POLLING_H_
