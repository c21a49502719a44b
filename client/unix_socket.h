#ifndef ATTND_CLIENT_UNIX_SOCKET_H_
#define ATTND_CLIENT_UNIX_SOCKET_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace attnd::client {

// A connection to a unix socket that somebody else, gRPC, reads and writes
// through a descriptor of its own. Thread-safe.
class UnixSocket {
 public:
  // Whether gRPC would take `target` for a unix socket.
  static bool Names(const std::string& target);

  // "unix:path", "unix:///path" or "unix-abstract:name", taken as it stands
  // (no %-escapes). Does not block. INVALID_ARGUMENT: too long a path.
  // UNAVAILABLE: nobody listens there, or has no room for another connection.
  static absl::StatusOr<std::shared_ptr<UnixSocket>> Connect(
      const std::string& target);

  ~UnixSocket();
  UnixSocket(const UnixSocket&) = delete;
  UnixSocket& operator=(const UnixSocket&) = delete;

  // Another descriptor of the connection, non-blocking, the caller's to close;
  // RESOURCE_EXHAUSTED when the process has no more.
  absl::StatusOr<int> Duplicate() const;
  // Ends reading and writing, also a write that is stuck, on all descriptors.
  void Shutdown();
  // Whether the peer has closed the connection, or Shutdown was called.
  bool Closed() const;

 private:
  explicit UnixSocket(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_UNIX_SOCKET_H_
