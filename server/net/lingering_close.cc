#include "server/net/lingering_close.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/guard/guard.h"
#include "base/guard/system_calls.h"
#include "server/net/socket_identity.h"

namespace attnd::server {
namespace {

// Those of this process, whom shutdown() asks in turn. Never destroyed, as
// gRPC's threads may still end connections while the process exits.
struct Everyone {
  Mutex mutex;
  std::vector<LingeringClose*> list ABSL_GUARDED_BY(mutex);
};

Everyone& All() {
  static Everyone* const everyone = new Everyone;
  return *everyone;
}

// Reads and drops some of what came, and says how that went, as recv() does.
ssize_t Drop(int fd) {
  // Small, so that a peer that does not stop sending is not read for long.
  std::array<char, 64 << 10> dropped;
  return recv(fd, dropped.data(), dropped.size(), MSG_DONTWAIT);
}

// Has the system reset the connection as soon as it is closed. A peer that
// sends and does not read could otherwise wait for a window until it asks for
// one.
void Abort(int fd) {
  const linger at_once = {1, 0};
  system_calls::Setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once,
                           sizeof(at_once));
}

// The bytes that were sent and that the peer's system does not have yet.
int Untaken(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

// Whether the peer may send something more.
bool PeerIsThere(int fd) {
  pollfd polled = {fd, POLLRDHUP, 0};
  return poll(&polled, 1, 0) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LingeringClose>> LingeringClose::Start(
    ConnectionTable& table, absl::Duration longest) {
  std::unique_ptr<LingeringClose> closing(new LingeringClose(table, longest));
  closing->wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!closing->wake_.valid()) {
    return absl::ResourceExhaustedError(
        "no descriptor to end connections with");
  }
  try {
    closing->thread_ = std::thread(&LingeringClose::Run, closing.get());
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("no thread to end connections with");
  }
  MutexLock lock(All().mutex);
  All().list.push_back(closing.get());
  return closing;
}

LingeringClose::LingeringClose(ConnectionTable& table, absl::Duration longest)
    : table_(table), longest_(longest) {}

LingeringClose::~LingeringClose() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(All().mutex);
    std::erase(All().list, this);
  }
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

bool LingeringClose::End(int fd) { return End(fd, kMost); }

void LingeringClose::EndAll() {
  for (const int fd : table_.Open()) {
    End(fd, std::numeric_limits<size_t>::max());
  }
}

bool LingeringClose::End(int fd, size_t most) {
  // What the number stands for may change at any time, but for a duplicate.
  Descriptor connection(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  const auto socket = SocketIdentity::Of(connection.get());
  if (!socket.has_value() || !table_.Has(fd, *socket) ||
      !PeerIsThere(connection.get()) ||
      system_calls::Shutdown(connection.get(), SHUT_WR) != 0) {
    return false;
  }
  const absl::Time now = MonotonicNow();
  const int untaken = Untaken(connection.get());
  MutexLock lock(mutex_);
  // gRPC may end a connection twice.
  if (std::any_of(
          lingering_.begin(), lingering_.end(),
          [&](const Lingering& one) { return one.socket == *socket; })) {
    return true;
  }
  if (lingering_.size() >= most) lingering_.erase(lingering_.begin());
  lingering_.push_back({.connection = std::move(connection),
                        .socket = *socket,
                        .until = now + longest_,
                        .untaken = untaken,
                        .moved = now});
  eventfd_write(wake_.get(), 1);
  return true;
}

bool LingeringClose::WaitForNone(absl::Time deadline, absl::Duration quiet) {
  MutexLock lock(mutex_);
  while (true) {
    Look();
    absl::Time moved = absl::InfinitePast();
    for (const Lingering& one : lingering_) moved = std::max(moved, one.moved);
    const absl::Time until = std::min(deadline, moved + quiet);
    if (lingering_.empty() || MonotonicNow() >= until) {
      return lingering_.empty();
    }
    none_.WaitUntil(lock, until,
                    [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                      return lingering_.empty();
                    });
  }
}

void LingeringClose::Run() {
  std::vector<pollfd> polled;
  while (true) {
    polled.assign({{wake_.get(), POLLIN, 0}});
    absl::Time first = absl::InfiniteFuture();
    {
      MutexLock lock(mutex_);
      if (ending_) return;
      Look();
      for (const Lingering& one : lingering_) {
        polled.push_back({one.connection.get(), POLLIN, 0});
        first = std::min(first, one.until);
      }
    }
    const absl::Duration pause =
        std::max(first - MonotonicNow(), absl::ZeroDuration());
    const timespec timeout = absl::ToTimespec(pause);
    ppoll(polled.data(), polled.size(), &timeout, nullptr);
    eventfd_t told = 0;
    eventfd_read(wake_.get(), &told);
  }
}

void LingeringClose::Look() {
  const absl::Time now = MonotonicNow();
  std::erase_if(lingering_, [now](Lingering& one) {
    const int fd = one.connection.get();
    const ssize_t dropped = Drop(fd);
    const bool over =
        dropped == 0 || (dropped < 0 && errno != EAGAIN && errno != EINTR);
    const int untaken = Untaken(fd);
    if (dropped > 0 || untaken < std::exchange(one.untaken, untaken)) {
      one.moved = now;
    }
    one.dropped += std::max<ssize_t>(dropped, 0);
    if (over) return true;
    if (one.until > now && one.dropped <= kMostDropped) return false;
    Abort(fd);
    return true;
  });
  if (lingering_.empty()) none_.NotifyAll();
}

}  // namespace attnd::server

// As <sys/socket.h> declares it.
int shutdown(int fd, int how) noexcept {
  using attnd::server::All;
  auto* const guard = how == SHUT_RDWR ? attnd::GuardOf(fd) : nullptr;
  // A peer whose connection was cut would go on sending for as long as it may.
  const bool may_linger = guard == nullptr || guard->Goodbye();
  if (how == SHUT_RDWR && may_linger) {
    const attnd::MutexLock lock(All().mutex);
    for (attnd::server::LingeringClose* closing : All().list) {
      if (closing->End(fd)) return 0;
    }
  }
  return attnd::system_calls::Shutdown(fd, how);
}
