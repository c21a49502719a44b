#include "server/program/notify.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"

namespace attnd::server {
namespace {

constexpr timeval kPatience = {/*tv_sec=*/1, /*tv_usec=*/0};

// What the process does between the end of the drain and its own.
constexpr absl::Duration kAfterDrain = absl::Seconds(10);

}  // namespace

std::string NotifySocket() {
  const char* socket = std::getenv("NOTIFY_SOCKET");
  return socket == nullptr ? "" : socket;
}

absl::Status Notify(const std::string& socket, absl::string_view lines) {
  if (socket.empty()) return absl::OkStatus();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if ((socket[0] != '/' && socket[0] != '@') ||
      socket.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("NOTIFY_SOCKET=", socket, " is no address of a socket"));
  }
  std::memcpy(address.sun_path, socket.data(), socket.size());
  // The name of an abstract socket begins with a zero, and ends where its
  // address does.
  if (socket[0] == '@') address.sun_path[0] = '\0';
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket.size());
  const auto unavailable = [&socket] {
    return absl::UnavailableError(
        absl::StrCat("NOTIFY_SOCKET=", socket, ": ", std::strerror(errno)));
  };
  const Descriptor fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience,
                                sizeof(kPatience)) != 0) {
    return unavailable();
  }
  ssize_t sent = 0;
  do {
    sent = sendto(fd.get(), lines.data(), lines.size(), MSG_NOSIGNAL,
                  reinterpret_cast<sockaddr*>(&address), length);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? unavailable() : absl::OkStatus();
}

std::string Stopping(absl::Duration drain_time) {
  return absl::StrCat("STOPPING=1\nSTATUS=draining for up to ",
                      absl::FormatDuration(drain_time),
                      "\nEXTEND_TIMEOUT_USEC=",
                      absl::ToInt64Microseconds(drain_time + kAfterDrain));
}

}  // namespace attnd::server
