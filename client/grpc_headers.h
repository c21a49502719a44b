#ifndef ATTND_CLIENT_GRPC_HEADERS_H_
#define ATTND_CLIENT_GRPC_HEADERS_H_

// What goes beside the messages of a call, as gRPC has it.

#include <cstdint>

#include "absl/status/status.h"
#include "client/transport.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"

namespace attnd::client {

// Says `headers`, but for the deadline, and that the first message has at most
// `bytes`. Before the call starts.
void SayHeaders(const CallHeaders& headers, int64_t bytes,
                grpc::ClientContext& context);

// `status`, with which the call of `context` has ended; an error with the id
// that the server gives it, if it has one (wire::RequestId).
absl::Status StatusOf(const grpc::Status& status,
                      const grpc::ClientContext& context);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_GRPC_HEADERS_H_
