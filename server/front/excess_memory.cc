#include "server/front/excess_memory.h"

#include <memory>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace attnd::server {
namespace {

// What gRPC takes beside messages, and the C library beside what it gives out.
constexpr int64_t kOthers = int64_t{8} << 20;

struct LastLook {
  Mutex mutex;
  absl::Time time ABSL_GUARDED_BY(mutex) = absl::InfinitePast();
  int64_t bytes ABSL_GUARDED_BY(mutex) = 0;
};

}  // namespace

std::function<int64_t()> ExcessMemory(const ServerOptions& options) {
  if (!options.heap_in_use) return nullptr;
  const MemoryShares shares = DivideMemory(options.memory_limit_bytes);
  const int64_t most = shares.transport_bytes + shares.small_bytes +
                       shares.account_bytes + kOthers;
  return [most, heap_in_use = options.heap_in_use,
          last = std::make_shared<LastLook>()] {
    const absl::Time now = MonotonicNow();
    MutexLock lock(last->mutex);
    if (now - last->time >= kBetweenLooks) {
      last->bytes = heap_in_use();
      last->time = now;
    }
    return last->bytes - most;
  };
}

}  // namespace attnd::server
