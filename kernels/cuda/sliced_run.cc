#include "kernels/cuda/sliced_run.h"

#include <utility>

#include "base/clock.h"

namespace attnd::cuda {

absl::Status SlicedRun::Begin(std::unique_ptr<Rest> rest) {
  rest_ = std::move(rest);
  if (rest_ == nullptr) return absl::OkStatus();
  slices_ = over_ = 0;
  took_ = options_.time;
  ends_.Clear();
  return MarkEnd();
}

absl::Status SlicedRun::MarkEnd() {
  const int number = MarkOf(slices_++);
  return number < ends_.count() ? ends_.Move(number) : ends_.Add().status();
}

absl::Status SlicedRun::AwaitTurn(absl::Time& began) {
  if (slices_ - over_ == options_.under_way) {
    absl::Status status = ends_.WaitFor(MarkOf(over_));
    if (!status.ok()) return status;
    ++over_;
    const absl::Time now = MonotonicNow();
    took_ = now - began;
    began = now;
  }
  if (slices_ == over_) return absl::OkStatus();
  return ends_.WaitUntil(MarkOf(slices_ - 1), began + took_ / 2);
}

absl::StatusOr<double> SlicedRun::Proceed(absl::FunctionRef<bool()> pause) {
  absl::Time began = MonotonicNow();
  while (rest_ != nullptr) {
    absl::Status status = AwaitTurn(began);
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
