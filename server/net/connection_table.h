#ifndef ATTND_SERVER_NET_CONNECTION_TABLE_H_
#define ATTND_SERVER_NET_CONNECTION_TABLE_H_

// Which connections are open that were handed to somebody else, who does not
// say when they end.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/net/connection_limits.h"
#include "server/net/origin.h"
#include "server/net/socket_identity.h"

namespace attnd::server {

struct ConnectionStats {
  int open = 0;
  int64_t accepted = 0;
  std::array<int64_t, kRefusals> refused{};  // by Refusal
};

// A connection is open while its descriptor is, which its owner alone closes: a
// peer that has sent its last byte, or has reset the connection, still counts
// as long as anything here holds on to it, and no longer. It is found out by
// looking at what the descriptor's number stands for now, as a number that was
// closed stands for nothing or for another socket. A duplicate to be told by
// would cost a second descriptor for each connection, and tells of the peer's
// end, which may be long before the descriptor's.
//
// Nothing is looked at until it matters: when a connection would be refused,
// and when somebody asks how many there are. Thread-safe.
class ConnectionTable {
 public:
  ConnectionTable(int most, int most_per_origin)
      : limits_(most, most_per_origin) {}

  // Takes in the open socket `fd`, which was accepted just now, or says why it
  // may not be. `now` is MonotonicNow(): while many are refused, looking at
  // those that are open takes no more than some twentieth of the time, and so
  // what has just ended may count for some milliseconds more.
  std::optional<Refusal> Add(int fd, const Origin& origin, absl::Time now);
  // One was refused that never was a socket to be taken in.
  void CountRefused(Refusal why);

  // Whether this socket is one that is open with the descriptor `fd`.
  bool Has(int fd, const SocketIdentity& socket);
  // The descriptors of those that are open. Each is its owner's, who may close
  // it at any time.
  std::vector<int> Open();

  // Looks at all that are open.
  ConnectionStats stats();

 private:
  struct Connection {
    SocketIdentity identity;
    Origin origin;
  };

  std::optional<Refusal> Admit(const Origin& origin, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  ConnectionLimits limits_ ABSL_GUARDED_BY(mutex_);
  ConnectionStats stats_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<int, Connection> open_  // by descriptor
      ABSL_GUARDED_BY(mutex_);
  absl::Time next_look_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_CONNECTION_TABLE_H_
