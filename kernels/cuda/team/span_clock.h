#ifndef ATTND_KERNELS_CUDA_TEAM_SPAN_CLOCK_H_
#define ATTND_KERNELS_CUDA_TEAM_SPAN_CLOCK_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace attnd::cuda {

// Device time from the first to the last of what a stream has done, whatever it
// waited for in between. For one thread at a time, with the stream's device
// current. Every error means that the device is broken.
class SpanClock {
 public:
  explicit SpanClock(cudaStream_t stream) : stream_(stream) {}
  ~SpanClock();
  SpanClock(const SpanClock&) = delete;
  SpanClock& operator=(const SpanClock&) = delete;

  // Before something is enqueued, and after it.
  absl::Status Begin();
  absl::Status End();
  // All of that is over: how long it took since the last Finish.
  absl::StatusOr<absl::Duration> Finish();
  // The same, from the first of what `first`, which is of the same device, has
  // timed and not finished.
  absl::StatusOr<absl::Duration> FinishSince(const SpanClock& first);

 private:
  absl::Status Record(cudaEvent_t& event);

  const cudaStream_t stream_;
  cudaEvent_t first_ = nullptr, last_ = nullptr;  // created when first needed
  bool begun_ = false, ended_ = false;            // since the last Finish
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TEAM_SPAN_CLOCK_H_
