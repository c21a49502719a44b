#ifndef ATTND_KERNELS_CUDA_LAUNCH_REST_H_
#define ATTND_KERNELS_CUDA_LAUNCH_REST_H_

// A group that takes long is enqueued in slices, between which others may use
// the GPU: what has not been enqueued yet is its rest.

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace attnd::cuda {

// A group of less than so many slices is enqueued as a whole.
inline constexpr double kMostAtOnce = 1.5;

struct SliceOptions {
  // What a slice takes of the GPU, by estimates that may be off by half.
  absl::Duration time = absl::Milliseconds(10);
  // How many slices may be enqueued and not over. With one the GPU waits for
  // its host between two of them. With more the last one is enqueued when the
  // one that runs should be half over: early enough for the GPU, and as late as
  // that for who pauses or is cancelled, as those wait for all of them.
  int under_way = 2;
  // A slice has at least so many tiles for each block of threads that the GPU
  // has place for: of fewer the last ones, which end one after another, would
  // take up a large part. Where tiles take very long it has fewer (CutSlice).
  int least_waves = 16;
};

// For one thread at a time, with the device current; refers to the group and
// the workspace that it was begun with. May go at any time: then the rest is
// not computed.
class Rest {
 public:
  virtual ~Rest() = default;

  // Enqueues the next slice, if anything is left. Any error means that the
  // device is broken: memory was taken for all slices before the first.
  virtual absl::Status EnqueueSlice() = 0;
  // The share of the whole group that is enqueued; 1 when nothing is left.
  virtual double share() const = 0;
};

// Enqueues the first slice of a group; null if nothing is left then.
inline absl::StatusOr<std::unique_ptr<Rest>> BeginRest(
    std::unique_ptr<Rest> rest) {
  absl::Status status = rest->EnqueueSlice();
  if (!status.ok()) return status;
  if (rest->share() >= 1) rest = nullptr;
  return rest;
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_REST_H_
