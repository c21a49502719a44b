#ifndef ATTND_SERVER_IDENTITY_PEER_H_
#define ATTND_SERVER_IDENTITY_PEER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace attnd::server {

// Who calls, where neither a certificate nor a token says it: the peer's
// address without the port, from how gRPC spells peers ("ipv4:10.0.0.7:5123",
// "ipv6:%5B::1%5D:5123"). Every peer of a unix socket is one client.
std::string ClientOf(absl::string_view peer);

}  // namespace attnd::server

#endif  // ATTND_SERVER_IDENTITY_PEER_H_
