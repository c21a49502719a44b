#ifndef ATTND_SERVER_FRONT_GRPC_HEADER_H_
#define ATTND_SERVER_FRONT_GRPC_HEADER_H_

#include "absl/status/statusor.h"
#include "grpcpp/server_context.h"
#include "server/front/call_header.h"
#include "server/identity/callers.h"

namespace attnd::server {

// Callers::Admit of the call that has come: once for each.
absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context,
                                Callers& callers);

// What gRPC says of the call, with CallerOf.
CallHeader HeaderOf(const grpc::ServerContextBase& context, Callers& callers);

// By what its client knows a call.
CallIds IdsOf(const grpc::ServerContextBase& context);

// Adds `ids` to what the call's answer ends with: once, before that leaves.
void TellIds(const CallIds& ids, grpc::ServerContextBase& context);

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_GRPC_HEADER_H_
