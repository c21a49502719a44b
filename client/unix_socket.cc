#include "client/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

// What is on its way to the server; the system allows less, but more than its
// default, with which the two ends wake each other up for each 200 KiB.
constexpr int kSendBufferBytes = 4 << 20;

// The bytes of sun_path, which say by a leading 0 that the name is abstract.
std::string PathOf(absl::string_view target) {
  if (absl::ConsumePrefix(&target, "unix-abstract:")) {
    return absl::StrCat(absl::string_view("\0", 1), target);
  }
  absl::ConsumePrefix(&target, "unix:");
  absl::ConsumePrefix(&target, "//");
  return absl::StrCat(target, absl::string_view("\0", 1));
}

}  // namespace

bool UnixSocket::Names(const std::string& target) {
  return absl::StartsWith(target, "unix:") ||
         absl::StartsWith(target, "unix-abstract:");
}

absl::StatusOr<std::shared_ptr<UnixSocket>> UnixSocket::Connect(
    const std::string& target) {
  const std::string path = PathOf(target);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() > sizeof(address.sun_path)) {
    return wire::FieldError("target",
                            absl::StrCat("a path of ", path.size() - 1,
                                         " bytes is too long for a socket"));
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no socket: ", std::strerror(errno)));
  }
  const std::shared_ptr<UnixSocket> connection(new UnixSocket(fd));
  // Without it all works as well.
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes,
             sizeof(kSendBufferBytes));
  const socklen_t size = offsetof(sockaddr_un, sun_path) + path.size();
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect to ", target, ": ", std::strerror(errno)));
  }
  return connection;
}

UnixSocket::~UnixSocket() { close(fd_); }

absl::StatusOr<int> UnixSocket::Duplicate() const {
  const int fd = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (fd >= 0) return fd;
  return absl::ResourceExhaustedError(
      absl::StrCat("no descriptor: ", std::strerror(errno)));
}

void UnixSocket::Shutdown() { shutdown(fd_, SHUT_RDWR); }

bool UnixSocket::Closed() const {
  pollfd state = {.fd = fd_, .events = POLLRDHUP, .revents = 0};
  return poll(&state, 1, 0) > 0;
}

}  // namespace attnd::client
