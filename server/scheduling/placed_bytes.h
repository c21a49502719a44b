#ifndef ATTND_SERVER_SCHEDULING_PLACED_BYTES_H_
#define ATTND_SERVER_SCHEDULING_PLACED_BYTES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace attnd::server {

// How many bytes of requests have been placed on each device, whose inputs are
// there or on their way, so that the next one goes where there are fewest.
// Thread-safe.
class PlacedBytes : public std::enable_shared_from_this<PlacedBytes> {
 public:
  // One placed request; counts until it goes, and keeps the count.
  class Entry {
   public:
    Entry(std::shared_ptr<PlacedBytes> count, int device, int64_t bytes)
        : count_(std::move(count)), device_(device), bytes_(bytes) {}
    ~Entry() { count_->Add(device_, -bytes_); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    int device() const { return device_; }

   private:
    const std::shared_ptr<PlacedBytes> count_;
    const int device_;
    const int64_t bytes_;
  };

  explicit PlacedBytes(int devices) : bytes_(devices) {}

  // Places `bytes` on the device that has the fewest among `devices` (bit d:
  // device d), of which there is one at least; the lowest of those that tie.
  std::unique_ptr<Entry> Place(uint64_t devices, int64_t bytes) {
    int best = -1;
    {
      MutexLock lock(mutex_);
      for (int device = 0; device < static_cast<int>(bytes_.size()); ++device) {
        if ((devices >> device & 1) == 0) continue;
        if (best < 0 || bytes_[device] < bytes_[best]) best = device;
      }
      bytes_[best] += bytes;
    }
    return std::make_unique<Entry>(shared_from_this(), best, bytes);
  }

 private:
  void Add(int device, int64_t bytes) {
    MutexLock lock(mutex_);
    bytes_[device] += bytes;
  }

  Mutex mutex_;
  std::vector<int64_t> bytes_ ABSL_GUARDED_BY(mutex_);  // by device
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_PLACED_BYTES_H_
