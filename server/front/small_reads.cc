#include "server/front/small_reads.h"

#include <utility>
#include <vector>

#include "base/clock.h"

namespace attnd::server {

void SmallReads::Begin(const std::shared_ptr<SmallReader>& reader) {
  if (!excess_memory_) return;
  MutexLock lock(mutex_);
  readers_[reader.get()] = reader;
  if (std::exchange(looking_, true)) return;
  alarms_.Set(MonotonicNow() + kLookAtMemory, [this] { Look(); });
}

void SmallReads::End(const SmallReader& reader) {
  MutexLock lock(mutex_);
  readers_.erase(&reader);
}

void SmallReads::Look() {
  const bool excess = excess_memory_() > 0;
  std::vector<std::shared_ptr<SmallReader>> told;
  {
    MutexLock lock(mutex_);
    looking_ = !readers_.empty() && !excess;
    if (looking_) {
      alarms_.Set(MonotonicNow() + kLookAtMemory, [this] { Look(); });
    }
    if (!excess) return;
    told.reserve(readers_.size());
    for (const auto& [key, reader] : readers_) {
      if (auto alive = reader.lock()) told.push_back(std::move(alive));
    }
    readers_.clear();
  }
  // Without the lock, under which nobody is called back.
  for (const auto& reader : told) reader->OnExcess();
}

}  // namespace attnd::server
