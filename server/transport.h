#ifndef ATTND_SERVER_TRANSPORT_H_
#define ATTND_SERVER_TRANSPORT_H_

// What gRPC is told when a server is built.

#include <functional>
#include <memory>

#include "base/descriptor.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "server/config/options.h"

namespace attnd::server {

// The bounds that gRPC keeps to by itself: of connections, calls and messages.
void SetLimits(const ServerOptions& options, grpc::ServerBuilder& builder);

// What hands connections to the server that `builder` builds, as `credentials`
// have it: to be called once it has started and until it is shut down, by any
// thread.
std::function<void(Descriptor)> ConnectionsTo(
    grpc::ServerBuilder& builder,
    std::shared_ptr<grpc::ServerCredentials> credentials);

}  // namespace attnd::server

#endif  // ATTND_SERVER_TRANSPORT_H_
