#ifndef ATTND_CLIENT_GRPC_TRANSPORT_H_
#define ATTND_CLIENT_GRPC_TRANSPORT_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "attnd/client.h"
#include "client/transport.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace attnd::client {

// Unary calls over gRPC channels: `options.connections` of them to one target,
// taken in turn. Attempts run on gRPC's own callback threads, of which there
// is a fixed number.
class GrpcTransport final : public Transport {
 public:
  GrpcTransport(const std::string& target, const ClientOptions& options);

  std::function<void()> Start(const std::string& method,
                              const std::vector<wire::Piece>& pieces,
                              absl::Time deadline, Completion done) override;

 private:
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;

  std::vector<std::unique_ptr<Stub>> stubs_;
  std::atomic<uint32_t> next_{0};
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_GRPC_TRANSPORT_H_
