#include "server/net/connection_table.h"

namespace attnd::server {
namespace {

// Some twenty times what a look at one connection takes.
constexpr absl::Duration kBetweenLooks = absl::Microseconds(5);

}  // namespace

std::optional<Refusal> ConnectionTable::Add(int fd, const Origin& origin,
                                            absl::Time now) {
  const std::optional<SocketIdentity> identity = SocketIdentity::Of(fd);
  MutexLock lock(mutex_);
  // Whoever had this number has let go of it.
  if (const auto before = open_.find(fd); before != open_.end()) {
    limits_.Remove(before->second.origin);
    open_.erase(before);
  }
  const std::optional<Refusal> refusal =
      identity.has_value() ? Admit(origin, now) : Refusal::kNoDescriptor;
  if (refusal.has_value()) {
    ++stats_.refused[static_cast<int>(*refusal)];
  } else {
    ++stats_.accepted;
    open_[fd] = {*identity, origin};
  }
  return refusal;
}

std::optional<Refusal> ConnectionTable::Admit(const Origin& origin,
                                              absl::Time now) {
  std::optional<Refusal> refusal = limits_.Add(origin);
  if (!refusal.has_value() || now < next_look_) return refusal;
  next_look_ = now + kBetweenLooks * open_.size();
  RemoveEnded();
  return limits_.Add(origin);
}

void ConnectionTable::CountRefused(Refusal why) {
  MutexLock lock(mutex_);
  ++stats_.refused[static_cast<int>(why)];
}

bool ConnectionTable::Has(int fd, const SocketIdentity& socket) {
  MutexLock lock(mutex_);
  const auto at = open_.find(fd);
  return at != open_.end() && at->second.identity == socket;
}

std::vector<int> ConnectionTable::Open() {
  MutexLock lock(mutex_);
  RemoveEnded();
  std::vector<int> open;
  open.reserve(open_.size());
  for (const auto& [fd, connection] : open_) open.push_back(fd);
  return open;
}

ConnectionStats ConnectionTable::stats() {
  MutexLock lock(mutex_);
  RemoveEnded();
  stats_.open = limits_.open();
  return stats_;
}

void ConnectionTable::RemoveEnded() {
  for (auto entry = open_.begin(); entry != open_.end();) {
    const auto at = entry++;
    if (SocketIdentity::Of(at->first) == at->second.identity) continue;
    limits_.Remove(at->second.origin);
    open_.erase(at);
  }
}

}  // namespace attnd::server
