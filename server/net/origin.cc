#include "server/net/origin.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace attnd::server {
namespace {

// The bytes of an address, as the network has them, as one number.
uint64_t FromBytes(const uint8_t* bytes, int count) {
  uint64_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | bytes[i];
  return value;
}

void ToBytes(uint64_t value, int count, uint8_t* bytes) {
  for (int i = count - 1; i >= 0; --i) {
    bytes[i] = static_cast<uint8_t>(value);
    value >>= 8;
  }
}

}  // namespace

Origin OriginOf(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) {
    sockaddr_in v4 = {};
    std::memcpy(&v4, &peer, sizeof(v4));
    return {Origin::Kind::kIpv4, ntohl(v4.sin_addr.s_addr)};
  }
  if (peer.ss_family != AF_INET6) return {};
  sockaddr_in6 v6 = {};
  std::memcpy(&v6, &peer, sizeof(v6));
  const uint8_t* bytes = v6.sin6_addr.s6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    return {Origin::Kind::kIpv4, FromBytes(bytes + 12, 4)};
  }
  return {Origin::Kind::kIpv6Network, FromBytes(bytes, 8)};
}

Origin UserOrigin(uid_t user) { return {Origin::Kind::kUser, user}; }

std::string ToString(const Origin& origin) {
  uint8_t bytes[16] = {};
  char text[INET6_ADDRSTRLEN] = "";
  switch (origin.kind) {
    case Origin::Kind::kIpv4:
      ToBytes(origin.value, 4, bytes);
      return inet_ntop(AF_INET, bytes, text, sizeof(text));
    case Origin::Kind::kIpv6Network:
      ToBytes(origin.value, 8, bytes);
      return absl::StrCat(inet_ntop(AF_INET6, bytes, text, sizeof(text)),
                          "/64");
    case Origin::Kind::kUser:
      return absl::StrCat("user ", origin.value);
    case Origin::Kind::kOther:
      break;
  }
  return "an unknown address";
}

}  // namespace attnd::server
