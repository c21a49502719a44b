#ifndef ATTND_KERNELS_CUDA_SLICED_RUN_H_
#define ATTND_KERNELS_CUDA_SLICED_RUN_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/marks.h"
#include "kernels/cuda/launch/rest.h"
#include "kernels/cuda/slice_pace.h"

namespace attnd::cuda {

// Enqueues a group's rest on a stream, slice after slice, as the device comes
// to them. For one thread at a time, with the stream's device current. Every
// error means that the device is broken.
class SlicedRun {
 public:
  SlicedRun(cudaStream_t stream, const SliceOptions& options)
      : options_(options), ends_(stream), pace_(options.time) {}

  // Whether there is a rest.
  bool has_rest() const { return rest_ != nullptr; }
  // The first slice has just been enqueued; `rest`, which may be null, is what
  // comes after it.
  absl::Status Begin(std::unique_ptr<Rest> rest);
  // As Stream::Proceed; 1 if there is no rest.
  absl::StatusOr<double> Proceed(absl::FunctionRef<bool()> pause);
  // Gives up the rest.
  void Drop() { rest_ = nullptr; }

 private:
  // A mark at the end of the slice that has just been enqueued.
  absl::Status MarkEnd();
  int MarkOf(int64_t slice) const {
    return static_cast<int>(slice % options_.under_way);
  }
  // Waits until it is time to enqueue another slice.
  absl::Status AwaitTurn();

  const SliceOptions options_;
  std::unique_ptr<Rest> rest_;
  Marks ends_;          // of the slices under way: MarkOf
  int64_t slices_ = 0;  // of the group, enqueued so far
  int64_t over_ = 0;    // of these, known to be over
  SlicePace pace_;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_SLICED_RUN_H_
