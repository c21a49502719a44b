#include "server/net/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/net/address.h"

namespace attnd::server {
namespace {

// How often a free port is sought that all addresses of a name have.
constexpr int kTries = 16;

struct SocketAddress {
  sockaddr_storage bytes = {};
  socklen_t size = sizeof(bytes);

  int family() const { return bytes.ss_family; }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&bytes);
  }
  // sockaddr_in has it at the same place.
  in_port_t& port() {
    return reinterpret_cast<sockaddr_in6*>(&bytes)->sin6_port;
  }
  bool operator==(const SocketAddress& other) const {
    return size == other.size && std::memcmp(&bytes, &other.bytes, size) == 0;
  }
};

SocketAddress Any(int family, in_port_t port) {
  // Both kinds' addresses for "any" are zeros.
  SocketAddress any;
  any.bytes.ss_family = static_cast<sa_family_t>(family);
  any.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  any.port() = port;
  return any;
}

// What `host` stands for, each address once. An error's message says why not.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host,
                                                   int port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(std::string(BareHost(host)).c_str(),
                                std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found,
                                                                 freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress address;
    std::memcpy(&address.bytes, one->ai_addr, one->ai_addrlen);
    address.size = one->ai_addrlen;
    if (std::find(addresses.begin(), addresses.end(), address) ==
        addresses.end()) {
      addresses.push_back(address);
    }
  }
  return addresses;
}

class Listening {
 public:
  explicit Listening(absl::Duration unacknowledged)
      : unacknowledged_ms_(
            static_cast<int>(absl::ToInt64Milliseconds(unacknowledged))) {}

  // Adds a socket that listens on `address`. The errno, or 0.
  int Add(SocketAddress address) {
    if (address.port() == 0 && listeners_.port > 0) {
      address.port() = htons(listeners_.port);
    }
    Descriptor fd(socket(address.family(),
                         SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) return errno;
    const int on = 1, off = 0;
    const auto set = [&fd](int level, int name, const int& value) {
      return setsockopt(fd.get(), level, name, &value, sizeof(value)) == 0;
    };
    const bool is_set =
        // Addresses that connections of a server before are still to leave.
        set(SOL_SOCKET, SO_REUSEADDR, on) &&
        set(IPPROTO_TCP, TCP_NODELAY, on) &&
        set(IPPROTO_TCP, TCP_USER_TIMEOUT, unacknowledged_ms_) &&
        (address.family() != AF_INET6 || set(IPPROTO_IPV6, IPV6_V6ONLY, off));
    if (!is_set || bind(fd.get(), address.get(), address.size) != 0 ||
        listen(fd.get(), SOMAXCONN) != 0 ||
        getsockname(fd.get(), address.get(), &address.size) != 0) {
      return errno;
    }
    listeners_.port = ntohs(address.port());
    listeners_.sockets.push_back(std::move(fd));
    return 0;
  }

  // As Add. For any address of a machine that has IPv6, one socket takes both
  // kinds.
  int AddAny(in_port_t port) {
    const int error = Add(Any(AF_INET6, port));
    return error == 0 || error == EADDRINUSE ? error : Add(Any(AF_INET, port));
  }

  TcpListeners Take() { return std::move(listeners_); }
  bool empty() const { return listeners_.sockets.empty(); }

 private:
  const int unacknowledged_ms_;
  TcpListeners listeners_;
};

// Adds those that this machine has. The last errno if it has none, or if
// somebody listens on one of them; else 0.
int AddAll(const std::vector<SocketAddress>& addresses, Listening& listening) {
  int error = 0;
  for (SocketAddress address : addresses) {
    const in_port_t port = address.port();
    const bool any = address == Any(address.family(), port);
    const int now = any ? listening.AddAny(port) : listening.Add(address);
    if (now == EADDRINUSE) return now;
    if (now != 0) error = now;
    // It is all of them.
    if (now == 0 && any) break;
  }
  return listening.empty() ? error : 0;
}

}  // namespace

absl::StatusOr<TcpListeners> ListenOnTcp(const std::string& host, int port,
                                         absl::Duration unacknowledged) {
  const auto failed = [&](absl::string_view why) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", Address(host, port), ": ", why));
  };
  const absl::StatusOr<std::vector<SocketAddress>> addresses =
      Resolve(host, port);
  if (!addresses.ok()) return failed(addresses.status().message());
  int error = 0;
  for (int i = 0; i < kTries; ++i) {
    Listening listening(unacknowledged);
    error = AddAll(*addresses, listening);
    if (error == 0) return listening.Take();
    // Of a port that was free on one address, another may not have it.
    if (error != EADDRINUSE || port != 0) break;
  }
  return failed(std::strerror(error));
}

}  // namespace attnd::server
