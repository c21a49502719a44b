#ifndef ATTND_SERVER_NET_ADDRESS_H_
#define ATTND_SERVER_NET_ADDRESS_H_

// Addresses to listen on, as operators write them.

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace attnd::server {

// An address without the brackets that URLs put around IPv6.
absl::string_view BareHost(absl::string_view host);

// An address of 127.0.0.0/8, ::1, or an IPv4 one mapped into IPv6; "localhost".
// Any other name could lead anywhere.
bool IsLoopback(absl::string_view host);

// "127.0.0.1:7411", "[::1]:7411".
std::string Address(absl::string_view host, int port);

struct HostPort {
  std::string host;  // without brackets
  int port = 0;
};
// The inverse. None: there is no host, or no port from 0 to 65535; or a host
// with a colon has no brackets, so that it could end anywhere.
std::optional<HostPort> ParseHostPort(absl::string_view address);

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_ADDRESS_H_
