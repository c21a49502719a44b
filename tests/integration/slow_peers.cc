#include "tests/integration/slow_peers.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <utility>

namespace attnd::testing {

absl::StatusOr<std::vector<Descriptor>> SlowPeers(int count, int port) {
  constexpr const char* kSent[] = {"", "GET /metrics HTT",
                                   "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"};
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port);
  std::vector<Descriptor> peers;
  for (int i = 0; i < count; ++i) {
    peers.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int fd = peers.back().get(), bytes = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    const std::string sent = kSent[i % 3];
    if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0 ||
        send(fd, sent.data(), sent.size(), MSG_NOSIGNAL) !=
            static_cast<ssize_t>(sent.size())) {
      return absl::UnavailableError("the metrics' port takes no peer");
    }
  }
  return peers;
}

}  // namespace attnd::testing
