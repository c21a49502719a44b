#include "server/transport.h"

#include <utility>

#include "absl/time/time.h"
#include "grpc/compression.h"
#include "grpc/grpc.h"
#include "grpcpp/resource_quota.h"
#include "server/transport_limits.h"

namespace attnd::server {
namespace {

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

}  // namespace

void SetLimits(const ServerOptions& options, grpc::ServerBuilder& builder) {
  grpc::ResourceQuota quota("attnd");
  // Messages are admitted before they are read: UploadRoom. This is the last
  // line behind it, as gRPC knows no answer but to end streams.
  quota.Resize(2 * options.memory_limit_bytes);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  // A small compressed message could grow to any size.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  const std::pair<const char*, int> arguments[] = {
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_streams_per_connection},
      {GRPC_ARG_MAX_METADATA_SIZE,
       static_cast<int>(options.max_metadata_bytes)},
      // Also for its SETTINGS, which follow the preface.
      {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(options.header_time)},
      {GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time)},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout)},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
      // A client that measures the link pings ten times a second for what it
      // receives. It receives long after the last write where the link is slow,
      // and gRPC would take that for a flood. The inspector knows floods.
      {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0},
      // Otherwise a stream that nobody reads yet holds up to 8 MiB.
      {GRPC_ARG_HTTP2_BDP_PROBE, options.long_links ? 1 : 0},
      {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes},
      // It counts every call and message, for whoever may look.
      {GRPC_ARG_ENABLE_CHANNELZ, options.admin_address.empty() ? 0 : 1},
  };
  for (const auto& [name, value] : arguments) {
    builder.AddChannelArgument(name, value);
  }
  if (options.connection_age > absl::ZeroDuration()) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               Milliseconds(options.connection_age));
  }
  if (options.idle_timeout > absl::ZeroDuration()) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                               Milliseconds(options.idle_timeout));
  }
}

std::function<void(Descriptor)> ConnectionsTo(
    grpc::ServerBuilder& builder,
    std::shared_ptr<grpc::ServerCredentials> credentials) {
  using Builder = grpc::ServerBuilder::experimental_type;
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  return [acceptor = std::shared_ptr<Acceptor>(
              builder.experimental().AddExternalConnectionAcceptor(
                  Builder::ExternalConnectionType::FROM_FD,
                  std::move(credentials)))](Descriptor connection) {
    Acceptor::NewConnectionParameters parameters;
    parameters.fd = connection.release();
    acceptor->HandleNewConnection(&parameters);
  };
}

}  // namespace attnd::server
