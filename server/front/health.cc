#include "server/front/health.h"

#include <utility>

namespace attnd::server {

bool Health::Knows(absl::string_view service) {
  return service.empty() || service == "attn.v1.AttentionService";
}

void Health::Started() {
  {
    MutexLock lock(mutex_);
    started_ = true;
  }
  Tell();
}

void Health::DeviceLeft() {
  {
    MutexLock lock(mutex_);
    --devices_left_;
  }
  Tell();
}

void Health::Draining() {
  {
    MutexLock lock(mutex_);
    draining_ = true;
  }
  Tell();
}

void Health::Ended() {
  {
    MutexLock lock(mutex_);
    draining_ = ended_ = true;
  }
  Tell();
}

bool Health::IsServing() const {
  return started_ && !draining_ && devices_left_ > 0;
}

bool Health::serving() const {
  MutexLock lock(mutex_);
  return IsServing();
}

bool Health::ended() const {
  MutexLock lock(mutex_);
  return ended_;
}

absl::string_view Health::Describe() const {
  MutexLock lock(mutex_);
  if (IsServing()) return "serving";
  if (draining_) return "draining";
  return started_ ? "no device is in service" : "starting";
}

void Health::Watch(const std::shared_ptr<HealthWatcher>& watcher) {
  MutexLock lock(mutex_);
  watchers_[watcher.get()] = watcher;
}

void Health::Unwatch(const HealthWatcher& watcher) {
  MutexLock lock(mutex_);
  watchers_.erase(&watcher);
}

// Without the lock, under which nobody is called back.
void Health::Tell() {
  std::vector<std::shared_ptr<HealthWatcher>> told;
  {
    MutexLock lock(mutex_);
    told.reserve(watchers_.size());
    for (const auto& [key, watcher] : watchers_) {
      if (auto alive = watcher.lock()) told.push_back(std::move(alive));
    }
  }
  for (const auto& watcher : told) watcher->OnHealth();
}

}  // namespace attnd::server
