#ifndef ATTND_SERVER_NET_ORIGIN_H_
#define ATTND_SERVER_NET_ORIGIN_H_

// Where a connection comes from, as far as limits tell origins apart.

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

namespace attnd::server {

// An IPv4 address, an IPv6 network of 64 bits, of which a host may use every
// address, or, on a unix socket, a user.
struct Origin {
  enum class Kind : uint8_t { kOther, kIpv4, kIpv6Network, kUser };

  Kind kind = Kind::kOther;
  uint64_t value = 0;

  bool operator==(const Origin&) const = default;
  template <typename H>
  friend H AbslHashValue(H hash, const Origin& origin) {
    return H::combine(std::move(hash), origin.kind, origin.value);
  }
};

// Of a peer's address. An IPv4 address that is mapped into IPv6 is that IPv4
// address. Anything but IP is kOther.
Origin OriginOf(const sockaddr_storage& peer);
Origin UserOrigin(uid_t user);

// "10.0.0.7", "2001:db8:0:7::/64", "user 1000".
std::string ToString(const Origin& origin);

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_ORIGIN_H_
