#ifndef ATTND_SERVER_NET_HANG_UP_WATCH_H_
#define ATTND_SERVER_NET_HANG_UP_WATCH_H_

// Peers that hang up while whoever reads their connection does not see it.
//
// Where gRPC (1.51) reads whole frames, as server/program/frame_reads.h has it
// do, it can read a connection's end together with bytes of a frame that is not
// complete. It then waits for the rest, and nothing tells it of the end again:
// the call and its memory would stay until a keepalive ping fails.

#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "base/descriptor.h"

namespace attnd::server {

// Of one thread.
class HangUpWatch {
 public:
  // May fail for want of descriptors, and then watches nothing: valid().
  HangUpWatch();
  bool valid() const { return epoll_.valid(); }

  // Watches a connected socket until its owner closes it. `fd` stays its
  // owner's.
  void Add(int fd);

  // Becomes readable when a peer has hung up: Look() then.
  int descriptor() const { return epoll_.get(); }
  // Wakes who waits for a socket whose peer hung up a second ago, if it is open
  // still: for them it becomes readable once more, also with EPOLLET. Nobody
  // loses a byte. `now` is MonotonicNow(); returns how long after it to look
  // again even if nobody else hangs up.
  absl::Duration Look(absl::Time now);

 private:
  struct HungUp {
    uint64_t socket = 0;  // as epoll keeps it
    absl::Time wake;
  };

  Descriptor epoll_;
  std::deque<HungUp> hung_up_;  // who is to be woken next comes first
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_HANG_UP_WATCH_H_
