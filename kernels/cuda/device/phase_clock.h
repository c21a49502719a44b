#ifndef ATTND_KERNELS_CUDA_DEVICE_PHASE_CLOCK_H_
#define ATTND_KERNELS_CUDA_DEVICE_PHASE_CLOCK_H_

// Device time of what a stream does, by phase, from events between them.

#include <cuda_runtime_api.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"

namespace attnd::cuda {

// For one thread at a time, with the stream's device current. Every error means
// that the device is broken.
class PhaseClock {
 public:
  using Phase = absl::Duration PhaseTimes::*;

  explicit PhaseClock(cudaStream_t stream) : stream_(stream) {}
  ~PhaseClock();
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

  // What is enqueued from now on belongs to `phase`; to none if it is null.
  absl::Status Enter(Phase phase);

  // Whether all that was enqueued is over, for which it waits as long as
  // `time`. Finish says what went wrong.
  bool EndsWithin(absl::Duration time);

  // Waits for all that was enqueued, says how long the phases took since the
  // last Finish, and starts anew. A phase includes what the stream waited for
  // its host in it.
  absl::StatusOr<PhaseTimes> Finish();

 private:
  absl::Status Mark();

  const cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;  // created when first needed, then reused
  std::vector<Phase> phases_;  // phases_[i] begins at events_[i]; null: none
  size_t marks_ = 0;           // events recorded since the last Finish
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_DEVICE_PHASE_CLOCK_H_
