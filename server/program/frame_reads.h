#ifndef ATTND_SERVER_PROGRAM_FRAME_READS_H_
#define ATTND_SERVER_PROGRAM_FRAME_READS_H_

namespace attnd::server {

// Makes gRPC (1.51) read whole frames, up to 2 MiB at once, where it would
// otherwise be woken for what a few packets brought: each time a thread reads,
// and another takes its place at epoll. That is up to a sixth of what a byte
// costs (tests/bench/RESULTS.md, "Server CPU"). gRPC knows this by
// GRPC_EXPERIMENTS alone, which a user can set, too, and has the last word
// there: "-tcp_rcv_lowat" takes it back.
//
// For the whole process, before it has threads and before it uses gRPC. Needs
// HangUpWatch, which Acceptor has.
void ReadWholeFrames();

}  // namespace attnd::server

#endif  // ATTND_SERVER_PROGRAM_FRAME_READS_H_
