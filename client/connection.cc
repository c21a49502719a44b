#include "client/connection.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/errno_of_connect.h"
#include "client/connection_error.h"
#include "client/socket_mutator.h"
#include "grpc/grpc.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/create_channel_posix.h"
#include "grpcpp/security/credentials.h"

namespace attnd::client {
namespace {

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(std::clamp<int64_t>(
      absl::ToInt64Milliseconds(duration), 1, std::numeric_limits<int>::max()));
}

grpc::ChannelArguments Arguments(const ClientOptions& options,
                                 const Credentials& credentials, int index) {
  grpc::ChannelArguments args;
  if (!credentials.server_name().empty()) {
    args.SetSslTargetNameOverride(credentials.server_name());
  }
  // The environment may name one, even for this host.
  if (credentials.stays_on_host()) args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Distinct arguments and pools of their own: connections are not shared.
  args.SetInt("attnd.connection", index);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  args.SetMaxSendMessageSize(-1);  // checked before, naming the field
  // Retries are ours: gRPC's buffer is far smaller than a tensor.
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
              Milliseconds(options.initial_backoff));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
              Milliseconds(options.max_backoff));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
              Milliseconds(options.keepalive_timeout));
  // A write that is stuck sends no data, and a long computation neither.
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Results come in large frames, each of which costs as much as a small one,
  // and into a window that is open from the first: gRPC would find out how wide
  // it is to be by pings, which cost more than they find where a link is short.
  // What comes is read at once, so a wide window holds nothing.
  args.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 2 << 20);
  args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  args.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20);
  args.SetCompressionAlgorithm(GRPC_COMPRESS_NONE);
  args.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
              1 << GRPC_COMPRESS_NONE);
  return args;
}

// Of gRPC's two kinds of TLS these say more of what went wrong: which name a
// certificate lacks, where grpc::experimental::TlsCredentials only say that the
// check failed. Neither reloads as it should: what those have for it takes a
// certificate without its key, and then no handshake succeeds. So a channel
// keeps what it was made with, and what is renewed gets a channel of its own.
// Both take TLS 1.2 and 1.3 alone.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(
    const Credentials::Tls* tls) {
  if (tls == nullptr) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = tls->authorities;
  options.pem_cert_chain = tls->certificate;
  options.pem_private_key = tls->key;
  return grpc::SslCredentials(options);
}

}  // namespace

// As metadata of the call: gRPC's call credentials go over TLS alone, while a
// token may also go to a unix socket.
void Connection::Identify(grpc::ClientContext& context) const {
  if (const auto value = credentials_->authorization()) {
    context.AddMetadata("authorization", *value);
  }
}

absl::Status Connection::Explain(const absl::Status& status) const {
  if (status.ok()) return status;
  absl::Status explained = status;
  if (socket_ == nullptr) {
    const bool tls = tls_ != nullptr;
    const std::string failure =
        tls_sockets_ != nullptr ? tls_sockets_->failure() : "";
    explained = ExplainConnectionError(
        status, {.tls = tls,
                 .has_certificate = tls && !tls_->key.empty(),
                 .failure = failure});
  }
  // A server that does not know the caller, or no connection: what the files
  // hold now might have helped.
  if (!absl::IsUnauthenticated(status) && explained == status) return status;
  const absl::Status renewal = credentials_->renewal();
  if (renewal.ok()) return explained;
  return WithNote(explained, absl::StrCat("what has been renewed is not used: ",
                                          renewal.message()));
}

ConnectionSlot::ConnectionSlot(const std::string& target,
                               const ClientOptions& options,
                               std::shared_ptr<const Credentials> credentials,
                               int index, Executor* executor)
    : target_(target),
      credentials_(std::move(credentials)),
      arguments_(Arguments(options, *credentials_, index)),
      executor_(executor) {
  if (UnixSocket::Names(target)) return;  // connects on first use
  KeepErrnoOfConnect();
  connection_ = ConnectOverTcp(credentials_->tls());
}

absl::StatusOr<std::shared_ptr<Connection>> ConnectionSlot::Get() {
  MutexLock lock(mutex_);
  const auto tls = credentials_->tls();
  if (connection_ != nullptr && connection_->usable() &&
      connection_->tls() == tls) {
    replaced_.reset();
    return connection_;
  }
  absl::StatusOr<std::shared_ptr<Connection>> fresh;
  if (UnixSocket::Names(target_)) {
    fresh = ConnectToSocket();
  } else {
    fresh = ConnectOverTcp(tls);
  }
  if (fresh.ok()) replaced_ = std::exchange(connection_, *fresh);
  return fresh;
}

StreamQueue& ConnectionSlot::queue() {
  MutexLock lock(mutex_);
  if (queue_ == nullptr) queue_ = std::make_unique<StreamQueue>();
  return *queue_;
}

std::shared_ptr<Connection> ConnectionSlot::ConnectOverTcp(
    std::shared_ptr<const Credentials::Tls> tls) const {
  std::shared_ptr<TlsSockets> tls_sockets;
  if (tls != nullptr) {
    tls_sockets = MakeTlsSockets(target_, *tls, credentials_->server_name());
  }
  grpc::ChannelArguments arguments = arguments_;
  if (tls_sockets != nullptr) {
    ProtectSockets(tls_sockets, arguments);
    // What gRPC says to a server whose connection it encrypts itself.
    arguments.SetString(GRPC_ARG_HTTP2_SCHEME, "https");
    // There was none to be asked, and none could be.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  }
  auto channel = grpc::CreateCustomChannel(
      target_,
      ChannelCredentialsOf(tls_sockets == nullptr ? tls.get() : nullptr),
      arguments);
  return Own(std::make_unique<Connection>(std::move(channel), nullptr,
                                          credentials_, std::move(tls),
                                          std::move(tls_sockets)));
}

absl::StatusOr<std::shared_ptr<Connection>> ConnectionSlot::ConnectToSocket()
    const {
  auto socket = UnixSocket::Connect(target_);
  if (!socket.ok()) return socket.status();
  const auto fd = (*socket)->Duplicate();
  if (!fd.ok()) return fd.status();
  auto channel =
      grpc::CreateCustomInsecureChannelFromFd("localhost", *fd, arguments_);
  return Own(std::make_unique<Connection>(
      std::move(channel), *std::move(socket), credentials_, nullptr, nullptr));
}

std::shared_ptr<Connection> ConnectionSlot::Own(
    std::unique_ptr<Connection> connection) const {
  if (executor_ == nullptr) return connection;
  return std::shared_ptr<Connection>(
      connection.release(), [executor = executor_](Connection* unused) {
        executor->Post([unused] { delete unused; });
      });
}

}  // namespace attnd::client
