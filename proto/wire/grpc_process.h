#ifndef ATTND_PROTO_WIRE_GRPC_PROCESS_H_
#define ATTND_PROTO_WIRE_GRPC_PROCESS_H_

namespace attnd::wire {

// What programs set before they use gRPC, for the whole process: before it has
// threads, and not in a library.
//
// - The thread of each completion queue polls the connections of that queue.
//   gRPC (1.51) would have one thread poll all that the process has, in turn
//   with the others, which then wait for each other at several connections. It
//   knows this by the environment's GRPC_POLL_STRATEGY alone, which is left as
//   it is where a user has set it. Programs inherit it.
// - A client's connections are then looked at while a call waits for them, and
//   otherwise every 100 ms, where gRPC would look every 5 s. A call that finds
//   no connection fails at once and waits for none: without those looks a
//   client that calls all the time took 4.5 s to find that its server was there
//   again. GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS is left alike.
// - gRPC's locks are Abseil's, which Debian builds so that each time one is
//   taken while another is held, a graph of all of them is searched for a
//   deadlock, under one lock of the process. That search is left out, but in
//   debug builds: it took 9 % of what a client executes for a small call.
void PrepareForGrpc();

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_GRPC_PROCESS_H_
