#include "kernels/cuda/sliced_run.h"

#include <utility>

namespace attnd::cuda {

absl::Status SlicedRun::Begin(std::unique_ptr<Rest> rest) {
  rest_ = std::move(rest);
  if (rest_ == nullptr) return absl::OkStatus();
  slices_ = over_ = 0;
  ends_.Clear();
  return MarkEnd();
}

absl::Status SlicedRun::MarkEnd() {
  const auto number = static_cast<int>(slices_++ % under_way_);
  return number < ends_.count() ? ends_.Move(number) : ends_.Add().status();
}

absl::StatusOr<double> SlicedRun::Proceed(absl::FunctionRef<bool()> pause) {
  while (rest_ != nullptr) {
    if (slices_ - over_ == under_way_) {
      absl::Status status = ends_.WaitFor(static_cast<int>(over_ % under_way_));
      if (!status.ok()) return status;
      ++over_;
    }
    if (pause()) return rest_->share();
    absl::Status status = rest_->EnqueueSlice();
    if (!status.ok()) return status;
    if (rest_->share() >= 1) {
      rest_ = nullptr;
    } else if (status = MarkEnd(); !status.ok()) {
      return status;
    }
  }
  return 1.0;
}

}  // namespace attnd::cuda
