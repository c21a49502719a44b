#ifndef ATTND_SERVER_NET_SOCKET_IDENTITY_H_
#define ATTND_SERVER_NET_SOCKET_IDENTITY_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>

namespace attnd::server {

// What a socket has to itself, for as long as the system runs. Its descriptor's
// number may stand for another one as soon as its owner has closed it.
struct SocketIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const SocketIdentity&) const = default;

  // Nothing: `fd` is closed.
  static std::optional<SocketIdentity> Of(int fd) {
    struct stat status = {};
    if (fstat(fd, &status) != 0) return std::nullopt;
    return SocketIdentity{status.st_dev, status.st_ino};
  }
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_SOCKET_IDENTITY_H_
