#include "server/net/hang_up_watch.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>

#include "server/net/socket_identity.h"

namespace attnd::server {
namespace {

// What owners have to see the end, and to close, by themselves: nearly all do.
// It also keeps the check of a socket and its waking away from the moment at
// which its number is most likely to be closed and given to another.
constexpr absl::Duration kPatience = absl::Seconds(1);

// What epoll keeps for a socket, 64 bits: its number, and half of its inode's.
// Nothing: `fd` is closed.
std::optional<uint64_t> Packed(int fd) {
  const std::optional<SocketIdentity> identity = SocketIdentity::Of(fd);
  if (!identity.has_value()) return std::nullopt;
  return uint64_t{static_cast<uint32_t>(fd)} << 32 |
         static_cast<uint32_t>(identity->inode);
}

// Nothing more comes from its peer, so the owner is only woken by this.
void WakeOwner(uint64_t socket) {
  const int fd = static_cast<int>(socket >> 32);
  if (Packed(fd) == socket) shutdown(fd, SHUT_RD);
}

}  // namespace

HangUpWatch::HangUpWatch() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

void HangUpWatch::Add(int fd) {
  const std::optional<uint64_t> socket = Packed(fd);
  if (!socket.has_value()) return;
  epoll_event event = {};
  event.events = EPOLLRDHUP | EPOLLONESHOT;
  event.data.u64 = *socket;
  // Without the memory for it a peer that hangs up is found by a ping.
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

absl::Duration HangUpWatch::Look(absl::Time now) {
  std::array<epoll_event, 64> events;
  int count = 0;
  do {
    count = epoll_wait(epoll_.get(), events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) {
      hung_up_.push_back({events[i].data.u64, now + kPatience});
    }
  } while (count == std::ssize(events));
  while (!hung_up_.empty() && hung_up_.front().wake <= now) {
    WakeOwner(hung_up_.front().socket);
    hung_up_.pop_front();
  }
  return hung_up_.empty() ? absl::InfiniteDuration()
                          : hung_up_.front().wake - now;
}

}  // namespace attnd::server
