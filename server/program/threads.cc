#include "server/program/threads.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace attnd::server {
namespace {

// Threads wait at it until it opens.
class Gate {
 public:
  void Wait() {
    MutexLock lock(mutex_);
    opened_.Wait(
        lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return open_; });
  }
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    opened_.NotifyAll();
  }

 private:
  Mutex mutex_;
  Condition opened_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

ThreadNeeds NeedsOf(const ServerOptions& options, int devices) {
  const int processors =
      std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_CONF)));
  ThreadNeeds needs;
  // gRPC 1.51: a pool and another of its kind, two executors and two timers at
  // first; then up to two a processor for each executor, and another timer.
  needs.at_start += std::clamp(processors, 2, 32) + 5;
  needs.under_load += 4 * processors + 1;
  needs.at_start +=
      devices * options.scheduler.lanes_per_device + options.IoThreads();
  if (options.metrics_port >= 0) needs.at_start += 1;
  if (options.tls.enabled()) needs.at_start += 1;
  // Who shows pages to operators, and answers their calls.
  if (!options.admin_address.empty()) needs.at_start += 2;
  // Who leases regions, who imports them, and who keeps their memory.
  if (options.regions.enabled()) needs.at_start += 3;
  // Who looks whether tokens have changed.
  if (!options.identity.token_file.empty()) needs.at_start += 1;
  // Who asks devices for their usage.
  needs.at_start += 1;
  // Who cuts calls that have come to a halt.
  needs.at_start += 1;
  // Who accepts connections, who hears them out when they have been ended, and
  // who waits for a second signal.
  needs.at_start += 3;
  return needs;
}

int CountStartable(int wanted) {
  Gate end;
  std::vector<std::thread> threads;
  threads.reserve(wanted);
  try {
    while (threads.size() < wanted) {
      threads.emplace_back([&end] { end.Wait(); });
    }
  } catch (const std::system_error&) {
    // As many as there may be.
  }
  end.Open();
  for (std::thread& thread : threads) thread.join();
  return static_cast<int>(threads.size());
}

}  // namespace attnd::server
