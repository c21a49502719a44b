#include "server/identity/token_watch.h"

#include <system_error>

#include "base/clock.h"

namespace attnd::server {

absl::StatusOr<std::unique_ptr<TokenWatch>> TokenWatch::Start(
    TokenStore& store) {
  std::unique_ptr<TokenWatch> watch(new TokenWatch(store));
  try {
    watch->thread_ = std::thread(&TokenWatch::Loop, watch.get());
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("no thread to watch tokens with");
  }
  return watch;
}

TokenWatch::~TokenWatch() {
  {
    MutexLock lock(mutex_);
    stops_ = true;
    stopped_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void TokenWatch::Loop() {
  while (true) {
    {
      MutexLock lock(mutex_);
      const bool stops = stopped_.WaitUntil(
          lock, MonotonicNow() + kLookEvery,
          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stops_; });
      if (stops) return;
    }
    store_.Look(MonotonicNow());
  }
}

}  // namespace attnd::server
