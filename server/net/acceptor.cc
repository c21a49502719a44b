#include "server/net/acceptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace attnd::server {
namespace {

// How long the acceptor rests when it cannot accept.
constexpr absl::Duration kRest = absl::Milliseconds(100);
// So that each door, and the end, get their turn.
constexpr int kAcceptsPerRound = 64;

struct Accepted {
  Descriptor connection;
  Origin origin;
};

// Not valid, with errno: nothing was accepted.
Accepted Accept(int listener) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  Accepted accepted;
  accepted.connection =
      Descriptor(accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size,
                         SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!accepted.connection.valid()) return accepted;
  if (peer.ss_family != AF_UNIX) {
    accepted.origin = OriginOf(peer);
    return accepted;
  }
  // Answers are on their way in this. The system allows less, but more than its
  // default, with which the two ends wake each other up for each 200 KiB;
  // without it all works as well.
  const int send_buffer_bytes = 4 << 20;
  setsockopt(accepted.connection.get(), SOL_SOCKET, SO_SNDBUF,
             &send_buffer_bytes, sizeof(send_buffer_bytes));
  ucred user = {};
  size = sizeof(user);
  if (getsockopt(accepted.connection.get(), SOL_SOCKET, SO_PEERCRED, &user,
                 &size) == 0) {
    accepted.origin = UserOrigin(user.uid);
  }
  return accepted;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Start(
    std::vector<Door> doors, ConnectionTable& table, OnRefusal on_refusal) {
  std::unique_ptr<Acceptor> acceptor(
      new Acceptor(std::move(doors), table, std::move(on_refusal)));
  acceptor->stop_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!acceptor->stop_.valid() || !acceptor->hang_ups_.valid()) {
    return absl::ResourceExhaustedError(
        "no descriptor to accept connections with");
  }
  try {
    acceptor->thread_ = std::thread(&Acceptor::Run, acceptor.get());
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("no thread to accept connections with");
  }
  return acceptor;
}

Acceptor::Acceptor(std::vector<Door> doors, ConnectionTable& table,
                   OnRefusal on_refusal)
    : doors_(std::move(doors)),
      table_(table),
      on_refusal_(std::move(on_refusal)) {}

Acceptor::~Acceptor() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void Acceptor::Run() {
  std::vector<pollfd> polled;
  bool resting = false;
  while (true) {
    reserve_.Fill();
    absl::Duration pause = hang_ups_.Look(MonotonicNow());
    if (resting) pause = std::min(pause, kRest);
    polled.assign(
        {{stop_.get(), POLLIN, 0}, {hang_ups_.descriptor(), POLLIN, 0}});
    const size_t first_door = polled.size();
    for (const Door& door : doors_) {
      polled.push_back({resting ? -1 : door.listener.get(), POLLIN, 0});
    }
    const timespec timeout = absl::ToTimespec(pause);
    if (ppoll(polled.data(), polled.size(), &timeout, nullptr) < 0) {
      if (errno == EINTR) continue;
      // No more may be polled than there may be descriptors: doors are tried
      // blindly.
      const timespec rest = absl::ToTimespec(kRest);
      ppoll(nullptr, 0, &rest, nullptr);
      polled[0].revents = POLLIN;
      resting = true;
    }
    eventfd_t told = 0;
    if (polled[0].revents != 0 && eventfd_read(stop_.get(), &told) == 0) return;
    const bool rested = std::exchange(resting, false);
    for (size_t i = 0; i < doors_.size(); ++i) {
      const bool due = rested || polled[first_door + i].revents != 0;
      if (due && !AcceptSome(doors_[i])) resting = true;
    }
  }
}

bool Acceptor::AcceptSome(const Door& door) {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    switch (AcceptOne(door)) {
      case Outcome::kAccepted:
        break;
      case Outcome::kNobodyWaits:
        return true;
      case Outcome::kCannot:
        return false;
    }
  }
  return true;
}

Acceptor::Outcome Acceptor::AcceptOne(const Door& door) {
  Accepted accepted = Accept(door.listener.get());
  if (accepted.connection.valid()) {
    const std::optional<Refusal> refusal =
        table_.Add(accepted.connection.get(), accepted.origin, MonotonicNow());
    if (!refusal.has_value()) {
      hang_ups_.Add(accepted.connection.get());
      door.hand_over(std::move(accepted.connection), accepted.origin);
    } else if (on_refusal_) {
      on_refusal_(*refusal, accepted.origin);
    }
    return Outcome::kAccepted;
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK) return Outcome::kNobodyWaits;
  if (IsOfThePeer(errno)) return Outcome::kAccepted;
  if (errno == EMFILE || errno == ENFILE) return RefuseWithReserve(door);
  return Outcome::kCannot;
}

// Only with a descriptor does accepting tell whether anybody waits.
Acceptor::Outcome Acceptor::RefuseWithReserve(const Door& door) {
  Outcome outcome = Outcome::kCannot;
  while (reserve_.Free()) {
    const Accepted accepted = Accept(door.listener.get());
    if (accepted.connection.valid()) {
      table_.CountRefused(Refusal::kNoDescriptor);
      if (on_refusal_) on_refusal_(Refusal::kNoDescriptor, accepted.origin);
      outcome = Outcome::kAccepted;
      break;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      outcome = Outcome::kNobodyWaits;
      break;
    }
    // Another thread was faster, or it fails for another reason.
  }
  reserve_.Fill();
  return outcome;
}

}  // namespace attnd::server
