#ifndef ATTND_CLIENT_TLS_GUARD_CLIENT_GUARD_H_
#define ATTND_CLIENT_TLS_GUARD_CLIENT_GUARD_H_

#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/guard/socket_guard.h"
#include "base/mutex.h"
#include "base/tls/tls_stream.h"

namespace attnd::client {

// A connection to a server, whose TLS gRPC knows nothing of. Its handshake goes
// on whenever gRPC reads or writes.
class ClientGuard final : public SocketGuard {
 public:
  // Before the handshake; the server is to prove to be `name`. `report` is told
  // how the handshake ended: why it failed, or "".
  ClientGuard(std::unique_ptr<TlsStream> tls, std::string name,
              std::function<void(std::string)> report);

  // Until the handshake is done there is nothing to be read, and what is sent
  // is kept: nobody wakes who waits for a socket that could be written all the
  // time. Before the server has spoken gRPC sends its preface and SETTINGS and
  // no call. If it fails, the connection is as one that was reset.
  ssize_t Receive(msghdr* message, int flags) override;
  ssize_t Send(const msghdr* message, int flags) override;
  bool Goodbye() override;
  bool is_plain() const override { return false; }

 private:
  // Goes on with the handshake. False, and errno: it is not done.
  bool GoOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Fail(std::string why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Reason() const;

  const std::unique_ptr<TlsStream> tls_;
  const std::string name_;
  const std::function<void(std::string)> report_;
  std::atomic<bool> is_open_{false};
  Mutex mutex_;
  bool has_failed_ ABSL_GUARDED_BY(mutex_) = false;
  std::string kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_TLS_GUARD_CLIENT_GUARD_H_
