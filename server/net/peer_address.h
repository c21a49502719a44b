#ifndef ATTND_SERVER_NET_PEER_ADDRESS_H_
#define ATTND_SERVER_NET_PEER_ADDRESS_H_

#include <string>

namespace attnd::server {

// The address of a connected socket's peer as gRPC (1.51) spells it:
// "ipv4:10.0.0.7:5123", "ipv6:%5B2001:db8::7%5D:5123". An IPv4 address that is
// mapped into IPv6 is that IPv4 address. Empty: it is not IP, or there is none.
std::string PeerAddress(int fd);

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_PEER_ADDRESS_H_
