#ifndef ATTND_SERVER_TELEMETRY_USAGE_WATCH_H_
#define ATTND_SERVER_TELEMETRY_USAGE_WATCH_H_

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "kernels/backend.h"

namespace attnd::server {

// Asks devices for their usage, on a thread of its own: the driver of a device
// that is about to fail may take seconds to answer, and whoever shows the
// figures answers probes as well. Thread-safe.
class UsageWatch {
 public:
  static constexpr absl::Duration kLookEvery = absl::Seconds(1);
  // An answer that is older counts as none.
  static constexpr absl::Duration kGoodFor = absl::Seconds(10);

  // `backends` outlive it. Where no device can tell, the thread finds that out
  // and ends. RESOURCE_EXHAUSTED: no thread.
  static absl::StatusOr<std::unique_ptr<UsageWatch>> Start(
      std::vector<const Backend*> backends);
  // Waits for a driver that has not answered.
  ~UsageWatch();

  // By device; `now` is MonotonicNow().
  std::vector<std::optional<DeviceUsage>> usage(absl::Time now) const;

 private:
  struct Answer {
    std::optional<DeviceUsage> usage;
    absl::Time at;
  };

  explicit UsageWatch(std::vector<const Backend*> backends)
      : backends_(std::move(backends)), answers_(backends_.size()) {}
  // Whether a device could tell.
  bool Look();
  void Loop();

  const std::vector<const Backend*> backends_;
  mutable Mutex mutex_;
  Condition stopped_;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Answer> answers_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_USAGE_WATCH_H_
