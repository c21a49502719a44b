#ifndef ATTND_SERVER_NET_ADDRESS_H_
#define ATTND_SERVER_NET_ADDRESS_H_

// Addresses to listen on, as operators write them.

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

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_ADDRESS_H_
