#ifndef ATTND_BASE_GUARD_SOCKET_GUARD_H_
#define ATTND_BASE_GUARD_SOCKET_GUARD_H_

#include <sys/socket.h>
#include <sys/types.h>

namespace attnd {

// Who is between gRPC and a connection that it reads and writes. Thread-safe,
// as a socket is for one thread that reads and one that writes.
class SocketGuard {
 public:
  SocketGuard() = default;
  virtual ~SocketGuard() = default;
  SocketGuard(const SocketGuard&) = delete;
  SocketGuard& operator=(const SocketGuard&) = delete;

  // As the system's recvmsg and sendmsg.
  virtual ssize_t Receive(msghdr* message, int flags) = 0;
  virtual ssize_t Send(const msghdr* message, int flags) = 0;

  // The connection will be shut down: tells a peer that speaks TLS. False:
  // nobody is to wait for its peer.
  virtual bool Goodbye() = 0;
  // Whether bytes of the socket are bytes of the connection.
  virtual bool is_plain() const = 0;
};

}  // namespace attnd

#endif  // ATTND_BASE_GUARD_SOCKET_GUARD_H_
