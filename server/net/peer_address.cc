#include "server/net/peer_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace attnd::server {

std::string PeerAddress(int fd) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
    return "";
  }
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET) {
    sockaddr_in v4 = {};
    std::memcpy(&v4, &peer, sizeof(v4));
    return absl::StrCat(
        "ipv4:", inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text)), ":",
        ntohs(v4.sin_port));
  }
  if (peer.ss_family != AF_INET6) return "";
  sockaddr_in6 v6 = {};
  std::memcpy(&v6, &peer, sizeof(v6));
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    return absl::StrCat(
        "ipv4:",
        inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text, sizeof(text)), ":",
        ntohs(v6.sin6_port));
  }
  const std::string zone =
      v6.sin6_scope_id == 0 ? "" : absl::StrCat("%25", v6.sin6_scope_id);
  return absl::StrCat("ipv6:%5B",
                      inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text)),
                      zone, "%5D:", ntohs(v6.sin6_port));
}

}  // namespace attnd::server
