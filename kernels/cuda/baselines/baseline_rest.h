#ifndef ATTND_KERNELS_CUDA_BASELINES_BASELINE_REST_H_
#define ATTND_KERNELS_CUDA_BASELINES_BASELINE_REST_H_

// Baselines that are enqueued slice by slice. A slice is some of their launches
// as they are: naive attention's sums follow from a whole batch, and of
// FlashAttention-1 a problem is one launch.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/status.h"
#include "kernels/cuda/launch/rest.h"

namespace attnd::cuda {

// Some of a problem's launches, in their order. Times are microseconds of one
// multiprocessor, estimated.
struct LaunchPart {
  int first = 0;  // launches that were enqueued before
  // What may still be enqueued; all of a launch that is begun.
  double micros = std::numeric_limits<double>::infinity();
  int end = 0;           // then: launches that are enqueued
  bool is_last = false;  // then: there are no more
};

// A Group has:
//
//   size_t size()                            problems
//   double Micros(n)                         about what problem n takes
//   absl::Status Run(n, LaunchPart& part)    enqueues a part of it, and nothing
//                                            more once it is cancelled
template <class Group>
class BaselineRest : public Rest {
 public:
  BaselineRest(Group group, double all_micros, double slice_micros)
      : group_(std::move(group)),
        all_micros_(all_micros),
        slice_micros_(slice_micros) {}

  absl::Status EnqueueSlice() override {
    LaunchPart part;
    part.micros = slice_micros_;
    while (next_ < group_.size() && part.micros > 0) {
      part.first = launches_;
      const double before = part.micros;
      absl::Status status = group_.Run(next_, part);
      if (!status.ok()) return Broken(std::move(status));
      done_micros_ += before - part.micros;
      launches_ = part.is_last ? 0 : part.end;
      if (part.is_last) ++next_;
    }
    return absl::OkStatus();
  }

  double share() const override {
    if (next_ == group_.size()) return 1;
    return std::min(0.999, done_micros_ / all_micros_);
  }

 private:
  Group group_;
  const double all_micros_, slice_micros_;
  double done_micros_ = 0;
  size_t next_ = 0;   // problem
  int launches_ = 0;  // of that, enqueued so far
};

// Enqueues all of the group.
template <class Group>
absl::Status RunAll(Group& group) {
  for (size_t n = 0; n < group.size(); ++n) {
    LaunchPart all;
    absl::Status status = group.Run(n, all);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Enqueues the group's first slice, or all of it if it is small; returns its
// rest, null if nothing is left.
template <class Group>
absl::StatusOr<std::unique_ptr<Rest>> BeginBaseline(
    Group group, const Gpu& gpu, const SliceOptions& slices) {
  double all = 0;
  for (size_t n = 0; n < group.size(); ++n) all += group.Micros(n);
  const double slice =
      absl::ToDoubleMicroseconds(slices.time) * gpu.multiprocessors;
  if (all <= kMostAtOnce * slice) {
    absl::Status status = RunAll(group);
    if (!status.ok()) return status;
    return nullptr;
  }
  return BeginRest(
      std::make_unique<BaselineRest<Group>>(std::move(group), all, slice));
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_BASELINE_REST_H_
