#include "client/connection.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "base/errno_of_connect.h"
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

grpc::ChannelArguments Arguments(const ClientOptions& options, int index) {
  grpc::ChannelArguments args;
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

}  // namespace

ConnectionSlot::ConnectionSlot(const std::string& target,
                               const ClientOptions& options, int index,
                               Executor* executor)
    : target_(target),
      arguments_(Arguments(options, index)),
      executor_(executor) {
  if (UnixSocket::Names(target)) return;  // connects on first use
  KeepErrnoOfConnect();
  connection_ = std::make_shared<Connection>(
      grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(),
                                arguments_),
      nullptr);
}

absl::StatusOr<std::shared_ptr<Connection>> ConnectionSlot::Get() {
  MutexLock lock(mutex_);
  if (connection_ != nullptr && connection_->usable()) {
    replaced_.reset();
    return connection_;
  }
  auto fresh = ConnectToSocket();
  if (fresh.ok()) replaced_ = std::exchange(connection_, *fresh);
  return fresh;
}

StreamQueue& ConnectionSlot::queue() {
  MutexLock lock(mutex_);
  if (queue_ == nullptr) queue_ = std::make_unique<StreamQueue>();
  return *queue_;
}

absl::StatusOr<std::shared_ptr<Connection>> ConnectionSlot::ConnectToSocket()
    const {
  auto socket = UnixSocket::Connect(target_);
  if (!socket.ok()) return socket.status();
  const auto fd = (*socket)->Duplicate();
  if (!fd.ok()) return fd.status();
  auto channel =
      grpc::CreateCustomInsecureChannelFromFd("localhost", *fd, arguments_);
  return std::shared_ptr<Connection>(
      new Connection(std::move(channel), *std::move(socket)),
      [executor = executor_](Connection* connection) {
        executor->Post([connection] { delete connection; });
      });
}

}  // namespace attnd::client
