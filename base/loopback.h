#ifndef ATTND_BASE_LOOPBACK_H_
#define ATTND_BASE_LOOPBACK_H_

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>

namespace attnd {

// Whether `address`, without brackets or a port, leads nowhere but to this
// host: one of 127.0.0.0/8, also mapped into IPv6, or ::1. A name is none.
inline bool IsLoopbackAddress(const std::string& address) {
  in_addr v4 = {};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    return ntohl(v4.s_addr) >> 24 == 127;
  }
  in6_addr v6 = {};
  if (inet_pton(AF_INET6, address.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) ||
         (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

}  // namespace attnd

#endif  // ATTND_BASE_LOOPBACK_H_
