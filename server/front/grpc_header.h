#ifndef ATTND_SERVER_FRONT_GRPC_HEADER_H_
#define ATTND_SERVER_FRONT_GRPC_HEADER_H_

#include "grpcpp/server_context.h"
#include "server/front/call_header.h"

namespace attnd::server {

// What gRPC says of a call.
CallHeader HeaderOf(const grpc::ServerContextBase& context);

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_GRPC_HEADER_H_
