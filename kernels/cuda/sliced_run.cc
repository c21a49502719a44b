#include "kernels/cuda/sliced_run.h"

#include <utility>

#include "base/clock.h"

namespace attnd::cuda {

absl::Status SlicedRun::Begin(std::unique_ptr<Rest> rest) {
  rest_ = std::move(rest);
  if (rest_ == nullptr) return absl::OkStatus();
  slices_ = over_ = 0;
  pace_ = SlicePace(options_.time);
  ends_.Clear();
  return MarkEnd();
}

absl::Status SlicedRun::MarkEnd() {
  const int number = MarkOf(slices_++);
  return number < ends_.count() ? ends_.Move(number) : ends_.Add().status();
}

absl::Status SlicedRun::AwaitTurn() {
  if (slices_ - over_ == options_.under_way) {
    absl::Status status = ends_.WaitFor(MarkOf(over_));
    if (!status.ok()) return status;
    ++over_;
    pace_.End(MonotonicNow());
  }
  if (slices_ == over_) return absl::OkStatus();
  return ends_.WaitUntil(MarkOf(slices_ - 1), pace_.half_over());
}

absl::StatusOr<double> SlicedRun::Proceed(absl::FunctionRef<bool()> pause) {
  pace_.Resume(MonotonicNow());
  while (rest_ != nullptr) {
    absl::Status status = AwaitTurn();
    if (!status.ok()) return status;
    if (pause()) return rest_->share();
    if (status = rest_->EnqueueSlice(); !status.ok()) return status;
    if (rest_->share() >= 1) {
      rest_ = nullptr;
    } else if (status = MarkEnd(); !status.ok()) {
      return status;
    }
  }
  return 1.0;
}

}  // namespace attnd::cuda
