#ifndef ATTND_KERNELS_CUDA_DEVICE_MARKS_H_
#define ATTND_KERNELS_CUDA_DEVICE_MARKS_H_

// Points of a stream that its host can wait for.

#include <cuda_runtime_api.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace attnd::cuda {

// Asks again and again whether the event has happened, as long as `time`.
// Thread-safe, as is the next.
bool HappensWithin(cudaEvent_t event, absl::Duration time);

// Waits until the event has happened: asks again and again at first, as a small
// batch is over sooner than a sleeping thread would wake, then sleeps, for
// which the event must have been created with cudaEventBlockingSync. An error
// means that the device is broken.
absl::Status WaitForEvent(cudaEvent_t event);

// For one thread at a time, with the stream's device current. Every error means
// that the device is broken.
class Marks {
 public:
  explicit Marks(cudaStream_t stream) : stream_(stream) {}
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // A mark behind all that has been enqueued: its number, from 0 on.
  absl::StatusOr<int> Add();
  // Moves mark `number`, of those added since Clear, to where the stream ends
  // now.
  absl::Status Move(int number);
  // Waits until all that is before the mark has happened.
  absl::Status WaitFor(int number) const;
  // The same, but not after `until`. Looks from time to time, in between it
  // sleeps.
  absl::Status WaitUntil(int number, absl::Time until) const;
  // For other streams to wait for.
  cudaEvent_t event(int number) const { return events_[number]; }
  // Numbers start at 0 again; nobody may ask for those before.
  void Clear() { count_ = 0; }
  int count() const { return count_; }

 private:
  const cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;  // created when first needed, then reused
  int count_ = 0;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_MARKS_H_
