#ifndef ATTND_SERVER_NET_LISTEN_H_
#define ATTND_SERVER_NET_LISTEN_H_

// TCP sockets to accept connections on.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/descriptor.h"

namespace attnd::server {

struct TcpListeners {
  std::vector<Descriptor> sockets;  // they do not block
  int port = -1;                    // the same for all of them
};

// Listens on `host`: an IPv4 or IPv6 address, with or without brackets, or a
// name, and then on all of its addresses that this machine has; 0.0.0.0 and ::
// are both every address of both kinds. `port` 0 is any free one.
//
// What is accepted inherits the options of these sockets: no delay for small
// segments, and a connection ends whose peer does not acknowledge what it was
// sent for `unacknowledged`.
//
// UNAVAILABLE, naming the address: there is none of that name, none of them can
// be had here, or somebody listens on one of them already.
absl::StatusOr<TcpListeners> ListenOnTcp(const std::string& host, int port,
                                         absl::Duration unacknowledged);

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_LISTEN_H_
