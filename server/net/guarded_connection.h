#ifndef ATTND_SERVER_NET_GUARDED_CONNECTION_H_
#define ATTND_SERVER_NET_GUARDED_CONNECTION_H_

// A client's connection, as gRPC reads and writes it: through whoever looks at
// its HTTP/2 first.

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "base/guard/socket_guard.h"
#include "base/mutex.h"
#include "base/tls/tls_stream.h"
#include "server/http2/inspector.h"
#include "server/http2/violation.h"
#include "server/net/tls_peers.h"

namespace attnd::server {

// A connection that was ended, after how much.
struct Cut {
  http2::Violation why;
  int64_t frames = 0;
  int64_t bytes = 0;
};

// Thread-safe, as a socket is for one thread that reads and one that writes.
class GuardedConnection final : public SocketGuard {
 public:
  // `on_cut` is called once at most, on whichever thread reads. `tls`: a
  // connection whose handshake is done, and `peer` whoever that has proved to
  // be; null: it is in clear.
  GuardedConnection(int fd, const http2::InspectorOptions& options,
                    std::unique_ptr<TlsStream> tls,
                    std::unique_ptr<TlsPeers::Entry> peer,
                    std::function<void(const Cut&)> on_cut);

  // What breaks HTTP/2's rules, or
  // floods, is never returned: the peer is told by GOAWAY why, if one can be
  // sent, and from then on the connection is as one that was reset.
  ssize_t Receive(msghdr* message, int flags) override;
  ssize_t Send(const msghdr* message, int flags) override;

  // False: it was cut.
  bool Goodbye() override;
  bool is_plain() const override { return tls_ == nullptr; }

 private:
  bool Inspect(absl::Span<const iovec> received, ssize_t bytes);
  void End(const http2::Violation& why);
  void SendGoAway(const http2::Violation& why);

  const int fd_;
  const std::unique_ptr<TlsStream> tls_;
  const std::unique_ptr<TlsPeers::Entry> peer_;
  const std::function<void(const Cut&)> on_cut_;
  std::atomic<bool> is_cut_{false};
  Mutex sending_;  // taken before the other
  Mutex mutex_;
  http2::Inspector inspector_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_GUARDED_CONNECTION_H_
