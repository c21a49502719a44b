#include "server/net/tls_door.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"

namespace attnd::server {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<TlsDoor>> TlsDoor::Start(TlsDoorParts parts) {
  std::unique_ptr<TlsDoor> door(new TlsDoor(std::move(parts)));
  door->epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  door->wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = door->wake_.get();
  if (!door->epoll_.valid() || !door->wake_.valid() ||
      epoll_ctl(door->epoll_.get(), EPOLL_CTL_ADD, door->wake_.get(), &event) !=
          0) {
    return absl::ResourceExhaustedError("no descriptor for TLS handshakes");
  }
  try {
    door->thread_ = std::thread(&TlsDoor::Run, door.get());
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("no thread for TLS handshakes");
  }
  return door;
}

TlsDoor::~TlsDoor() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

void TlsDoor::Add(Descriptor connection, const Origin& origin) {
  {
    MutexLock lock(mutex_);
    arrivals_.push_back({std::move(connection), origin,
                         MonotonicNow() + parts_.handshake_time});
  }
  eventfd_write(wake_.get(), 1);
}

void TlsDoor::Run() {
  absl::Time next_look = MonotonicNow() + kBetweenLooks;
  std::array<epoll_event, 64> events;
  while (true) {
    const absl::Duration pause =
        std::max(next_look - MonotonicNow(), absl::ZeroDuration());
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                   static_cast<int>(absl::ToInt64Milliseconds(pause)) + 1);
    // Before it looks who has come: whoever comes after that wakes it anew.
    eventfd_t told = 0;
    eventfd_read(wake_.get(), &told);
    std::vector<Arrival> arrivals;
    {
      MutexLock lock(mutex_);
      if (ending_) return;
      arrivals.swap(arrivals_);
    }
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd != wake_.get()) GoOn(events[i].data.fd);
    }
    for (Arrival& arrival : arrivals) Begin(std::move(arrival));
    const absl::Time now = MonotonicNow();
    if (now < next_look) continue;
    next_look = now + kBetweenLooks;
    GiveUp(now);
    parts_.on_second(parts_.credentials->Look());
  }
}

void TlsDoor::Begin(Arrival arrival) {
  const int fd = arrival.connection.get();
  Handshake& handshake = handshakes_[fd];
  handshake = {.arrival = std::move(arrival),
               .stream = TlsStream::Start(
                   fd, parts_.credentials->current()->NewConnection())};
  epoll_event event = {};
  event.data.fd = fd;
  if (handshake.stream == nullptr ||
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return Fail(fd, "out of memory");
  }
  GoOn(fd);
}

void TlsDoor::GoOn(int fd) {
  const auto at = handshakes_.find(fd);
  if (at == handshakes_.end()) return;
  Handshake& handshake = at->second;
  const TlsStream::Step step = handshake.stream->Handshake();
  if (step == TlsStream::Step::kFailed) {
    return Fail(fd, handshake.stream->failure());
  }
  if (step == TlsStream::Step::kDone) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    Handshake done = std::move(handshake);
    handshakes_.erase(at);
    return parts_.on_ready(std::move(done.arrival.connection),
                           std::move(done.stream), done.arrival.origin);
  }
  const uint32_t wanted =
      step == TlsStream::Step::kWantsToRead ? EPOLLIN : EPOLLOUT;
  if (wanted == handshake.watched) return;
  epoll_event event = {};
  event.events = handshake.watched = wanted;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void TlsDoor::Fail(int fd, absl::string_view why) {
  const auto at = handshakes_.find(fd);
  const Origin origin = at->second.arrival.origin;
  parts_.on_failure(why, origin);
  handshakes_.erase(at);
}

void TlsDoor::GiveUp(absl::Time now) {
  std::vector<int> late;
  for (const auto& [fd, handshake] : handshakes_) {
    if (handshake.arrival.until <= now) late.push_back(fd);
  }
  for (const int fd : late) Fail(fd, "it took too long");
}

}  // namespace attnd::server
