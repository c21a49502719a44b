#include "client/watchdog.h"

#include <algorithm>
#include <utility>

namespace attnd::client {
namespace {

// What has gone keeps its memory until the next look.
constexpr absl::Duration kLongestInterval = absl::Milliseconds(250);

}  // namespace

Watchdog::Watchdog(Executor& executor, absl::Duration grace)
    : executor_(executor),
      grace_(grace),
      interval_(std::min(grace / 4, kLongestInterval)) {}

void Watchdog::Watch(std::weak_ptr<Watched> watched) {
  {
    MutexLock lock(mutex_);
    watched_.push_back(std::move(watched));
    if (std::exchange(looking_, true)) return;
  }
  executor_.PostAfter(interval_, [this] { Look(); });
}

void Watchdog::Look() {
  std::vector<std::weak_ptr<Watched>> watched;
  {
    MutexLock lock(mutex_);
    watched.swap(watched_);
  }
  const absl::Time late = executor_.Now() - grace_;
  std::erase_if(watched, [late](const std::weak_ptr<Watched>& weak) {
    const std::shared_ptr<Watched> alive = weak.lock();
    if (alive == nullptr) return true;
    if (alive->due() > late) return false;
    alive->Break();
    return true;
  });
  {
    MutexLock lock(mutex_);
    watched_.insert(watched_.end(), watched.begin(), watched.end());
    looking_ = !watched_.empty();
    if (!looking_) return;
  }
  executor_.PostAfter(interval_, [this] { Look(); });
}

}  // namespace attnd::client
