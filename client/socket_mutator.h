#ifndef ATTND_CLIENT_SOCKET_MUTATOR_H_
#define ATTND_CLIENT_SOCKET_MUTATOR_H_

#include <memory>

#include "client/tls_sockets.h"
#include "grpcpp/support/channel_arguments.h"

namespace attnd::client {

// Whether this gRPC is one whose sockets can be protected.
bool CanProtectSockets();

// Has every socket that a channel with `arguments` connects protected by
// `sockets` before; one that cannot be is not connected. CanProtectSockets().
void ProtectSockets(std::shared_ptr<TlsSockets> sockets,
                    grpc::ChannelArguments& arguments);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_SOCKET_MUTATOR_H_
