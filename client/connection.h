#ifndef ATTND_CLIENT_CONNECTION_H_
#define ATTND_CLIENT_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attnd/client.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "client/credentials.h"
#include "client/executor.h"
#include "client/stream_queue.h"
#include "client/tls_sockets.h"
#include "client/unix_socket.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/channel_arguments.h"

namespace attnd::client {

// A gRPC channel. One to a TCP address connects, and connects again, by
// itself. One to a unix socket lives and dies with a connection that we made:
// gRPC ends no call whose write is stuck, and where TCP_USER_TIMEOUT cannot
// help it takes whoever has the socket to shut it down. Thread-safe.
class Connection {
 public:
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;

  // `socket` is null for a TCP address, `tls` where nothing is encrypted, and
  // `tls_sockets` where gRPC does that.
  Connection(std::shared_ptr<grpc::Channel> channel,
             std::shared_ptr<UnixSocket> socket,
             std::shared_ptr<const Credentials> credentials,
             std::shared_ptr<const Credentials::Tls> tls,
             std::shared_ptr<const TlsSockets> tls_sockets)
      : stub_(std::move(channel)),
        socket_(std::move(socket)),
        credentials_(std::move(credentials)),
        tls_(std::move(tls)),
        tls_sockets_(std::move(tls_sockets)) {}

  Stub& stub() { return stub_; }
  const std::shared_ptr<UnixSocket>& socket() const { return socket_; }

  // What it was made with.
  const std::shared_ptr<const Credentials::Tls>& tls() const { return tls_; }

  // Says who calls, in the metadata of a call over it.
  void Identify(grpc::ClientContext& context) const;
  // A call's status as its caller is to have it: of a connection that could not
  // be made it says what to check.
  absl::Status Explain(const absl::Status& status) const;

  // Whether it has not been used for a while; it is from now on. Between calls
  // perhaps nobody looks at the network.
  bool WasIdle() {
    const int64_t now = absl::ToUnixNanos(MonotonicNow());
    return now - last_used_ns_.exchange(now, std::memory_order_relaxed) >
           kIdleNs;
  }

  // An attempt found the server unavailable: a server that drains refuses what
  // comes over its old connections, while another may listen already.
  void Retire() { retired_.store(true, std::memory_order_relaxed); }
  // Whether further attempts should use it.
  bool usable() const {
    return socket_ == nullptr ||
           (!retired_.load(std::memory_order_relaxed) && !socket_->Closed());
  }

 private:
  static constexpr int64_t kIdleNs = 10'000'000;

  Stub stub_;
  const std::shared_ptr<UnixSocket> socket_;
  const std::shared_ptr<const Credentials> credentials_;
  const std::shared_ptr<const Credentials::Tls> tls_;
  const std::shared_ptr<const TlsSockets> tls_sockets_;
  std::atomic<bool> retired_{false};
  std::atomic<int64_t> last_used_ns_{0};
};

// One of a client's connections, replaced when it is no longer usable or what
// it was made with has been renewed, and the queue for streams over it.
// Thread-safe. Its streams must have ended before it does, and it ends on no
// thread of theirs.
class ConnectionSlot {
 public:
  // `index` tells a client's connections apart. Channels that are replaced are
  // destroyed on `executor`, which may be null where none is: whoever lets go
  // of the last reference may be a thread of gRPC's, which must not wait for
  // itself.
  ConnectionSlot(const std::string& target, const ClientOptions& options,
                 std::shared_ptr<const Credentials> credentials, int index,
                 Executor* executor);

  // Does not block. UNAVAILABLE: no server on that unix socket.
  absl::StatusOr<std::shared_ptr<Connection>> Get();

  // Whatever connection a stream is over; starts its thread when first asked
  // for.
  StreamQueue& queue();

 private:
  std::shared_ptr<Connection> ConnectOverTcp(
      std::shared_ptr<const Credentials::Tls> tls) const;
  absl::StatusOr<std::shared_ptr<Connection>> ConnectToSocket() const;
  std::shared_ptr<Connection> Own(std::unique_ptr<Connection> connection) const;

  const std::string target_;
  const std::shared_ptr<const Credentials> credentials_;
  const grpc::ChannelArguments arguments_;
  Executor* const executor_;
  Mutex mutex_;
  std::shared_ptr<Connection> connection_ ABSL_GUARDED_BY(mutex_);
  // Kept until its successor has been used: the last channel to go takes
  // gRPC's threads with it, which makes whoever calls wait.
  std::shared_ptr<Connection> replaced_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<StreamQueue> queue_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_CONNECTION_H_
