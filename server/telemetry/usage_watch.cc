#include "server/telemetry/usage_watch.h"

#include <system_error>

#include "base/clock.h"

namespace attnd::server {

absl::StatusOr<std::unique_ptr<UsageWatch>> UsageWatch::Start(
    std::vector<const Backend*> backends) {
  std::unique_ptr<UsageWatch> watch(new UsageWatch(std::move(backends)));
  try {
    watch->thread_ = std::thread(&UsageWatch::Loop, watch.get());
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("no thread to watch devices with");
  }
  return watch;
}

UsageWatch::~UsageWatch() {
  {
    MutexLock lock(mutex_);
    stops_ = true;
    stopped_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

std::vector<std::optional<DeviceUsage>> UsageWatch::usage(
    absl::Time now) const {
  std::vector<std::optional<DeviceUsage>> all;
  MutexLock lock(mutex_);
  for (const Answer& answer : answers_) {
    all.push_back(now - answer.at <= kGoodFor ? answer.usage : std::nullopt);
  }
  return all;
}

bool UsageWatch::Look() {
  bool any = false;
  for (size_t i = 0; i < backends_.size(); ++i) {
    std::optional<DeviceUsage> usage = backends_[i]->Usage();
    any |= usage.has_value();
    MutexLock lock(mutex_);
    answers_[i] = {usage, MonotonicNow()};
  }
  return any;
}

void UsageWatch::Loop() {
  bool stops = false;
  while (!stops && Look()) {
    MutexLock lock(mutex_);
    stops = stopped_.WaitUntil(
        lock, MonotonicNow() + kLookEvery,
        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stops_; });
  }
}

}  // namespace attnd::server
