#ifndef ATTND_SERVER_NET_LINGERING_CLOSE_H_
#define ATTND_SERVER_NET_LINGERING_CLOSE_H_

// Connections that the server ends while its peers still read.
//
// gRPC (1.51) ends a connection that is old or idle by shutdown(SHUT_RDWR) and
// close(), as soon as the system has taken its last byte; so does the end of
// the process. Whatever the peer sends from then on, be it only that it has
// read something, makes the system reset the connection, and throw away what
// has not arrived: a peer that is slow, or far away, loses the last answer.
//
// So here a connection ends as a web server would end it (a "lingering close"):
// nothing more is sent, what still comes is read and dropped, and it is closed
// once the peer has ended its side. As gRPC lets nobody choose how it ends a
// connection, this file's shutdown() takes the place of the system's in the
// whole program. It does what the system's does, except for SHUT_RDWR on a
// connection that a LingeringClose looks after.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/descriptor.h"
#include "base/mutex.h"
#include "server/net/connection_table.h"
#include "server/net/socket_identity.h"

namespace attnd::server {

// Thread-safe; one thread, which sleeps while no connection lingers.
class LingeringClose {
 public:
  // So many linger at once, each with a descriptor. For another one, who came
  // first is closed as it would have been.
  static constexpr int kMost = 64;
  // A peer that sends more than this, which is more than can have been on its
  // way, does not listen: it is closed, too.
  static constexpr int64_t kMostDropped = int64_t{16} << 20;

  // Looks after the connections of `table`, which must outlive it. Each lingers
  // for `longest` at most. RESOURCE_EXHAUSTED: no descriptor or no thread.
  static absl::StatusOr<std::unique_ptr<LingeringClose>> Start(
      ConnectionTable& table, absl::Duration longest);
  // Closes those that linger.
  ~LingeringClose();

  // Ends sending on a connection, whose descriptor stays its owner's, and lets
  // a duplicate linger. False, and nothing happened: it is not one of the
  // table's, its peer has ended it, or there is no descriptor.
  bool End(int fd);
  // All of the table, however many.
  void EndAll();

  // Waits until none lingers any more: true. False: at `deadline`, which is of
  // MonotonicNow(), some do, or before it none of them has sent or taken a byte
  // for as long as `quiet`.
  bool WaitForNone(absl::Time deadline, absl::Duration quiet);

 private:
  struct Lingering {
    Descriptor connection;
    SocketIdentity socket;
    absl::Time until;
    int64_t dropped = 0;  // bytes that came
    int untaken = 0;      // bytes of ours that the peer's system does not have
    absl::Time moved;  // when a byte came, or was taken, for all that is known
  };

  LingeringClose(ConnectionTable& table, absl::Duration longest);
  bool End(int fd, size_t most);
  void Run();
  // Drops some of what came, and closes those that are over.
  void Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ConnectionTable& table_;
  const absl::Duration longest_;
  Descriptor wake_;  // an eventfd: another one lingers, or it shall end
  Mutex mutex_;
  Condition none_;  // with mutex_
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  // In the order in which they came, which is that of `until`.
  std::vector<Lingering> lingering_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_LINGERING_CLOSE_H_
