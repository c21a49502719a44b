#include "server/program/threads.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace attnd::server {

ThreadNeeds NeedsOf(const ServerOptions& options, int devices) {
  const int processors =
      std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_CONF)));
  ThreadNeeds needs;
  // gRPC 1.51: a pool, pollers of calls, two executors, two timers and one for
  // reflection at first; then up to two a processor for each executor, another
  // timer, and reflection's others.
  needs.at_start +=
      std::clamp(processors, 2, 32) + std::clamp(processors / 2, 2, 16) + 5;
  needs.under_load += 4 * processors + 8;
  needs.at_start += devices * options.scheduler.lanes_per_device;
  if (options.metrics_port >= 0) needs.at_start += 1;
  // Who waits for a second signal.
  needs.at_start += 1;
  return needs;
}

int CountStartable(int wanted) {
  std::mutex mutex;
  std::condition_variable end;
  bool ended = false;
  std::vector<std::thread> threads;
  threads.reserve(wanted);
  try {
    while (threads.size() < wanted) {
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        end.wait(lock, [&] { return ended; });
      });
    }
  } catch (const std::system_error&) {
    // As many as there may be.
  }
  {
    std::lock_guard lock(mutex);
    ended = true;
  }
  end.notify_all();
  for (std::thread& thread : threads) thread.join();
  return static_cast<int>(threads.size());
}

}  // namespace attnd::server
