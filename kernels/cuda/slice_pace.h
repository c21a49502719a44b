#ifndef ATTND_KERNELS_CUDA_SLICE_PACE_H_
#define ATTND_KERNELS_CUDA_SLICE_PACE_H_

#include <algorithm>

#include "absl/time/time.h"

namespace attnd::cuda {

// When the slice that a device runs should be half over, by what the one before
// took.
class SlicePace {
 public:
  // `expected`: what a slice takes by estimates.
  explicit SlicePace(absl::Duration expected) : took_(expected) {}

  // Slices are under way, and nobody has seen the one that runs begin.
  void Resume(absl::Time now) {
    began_ = now;
    is_known_ = false;
  }
  // The slice that ran has ended, as is seen at once, and the next one begins.
  void End(absl::Time now) {
    const absl::Duration took = now - began_;
    // Before a group's first slice the device may have had other things to do,
    // and what began before Resume may have been nearly over.
    took_ = is_known_ ? took : std::min(took_, took);
    began_ = now;
    is_known_ = true;
  }
  absl::Time half_over() const { return began_ + took_ / 2; }

 private:
  absl::Duration took_;
  // When the device came to the slice that it runs, if that is known.
  absl::Time began_ = absl::InfinitePast();
  bool is_known_ = false;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_SLICE_PACE_H_
