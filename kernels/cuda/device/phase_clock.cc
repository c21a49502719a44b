#include "kernels/cuda/device/phase_clock.h"

#include "kernels/cuda/device/marks.h"
#include "kernels/cuda/device/status.h"

namespace attnd::cuda {

PhaseClock::~PhaseClock() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

absl::Status PhaseClock::Enter(Phase phase) {
  if (!phases_.empty() && phases_.back() == phase) return absl::OkStatus();
  absl::Status status = Mark();
  if (status.ok()) phases_.push_back(phase);
  return status;
}

absl::Status PhaseClock::Mark() {
  if (marks_ == events_.size()) {
    cudaEvent_t event = nullptr;
    absl::Status status = ToStatus(
        cudaEventCreateWithFlags(&event, cudaEventBlockingSync), "event");
    if (!status.ok()) return status;
    events_.push_back(event);
  }
  return ToStatus(cudaEventRecord(events_[marks_++], stream_), "event");
}

bool PhaseClock::EndsWithin(absl::Duration time) {
  if (phases_.empty() || !Enter(nullptr).ok()) return true;
  return HappensWithin(events_[marks_ - 1], time);
}

absl::StatusOr<PhaseTimes> PhaseClock::Finish() {
  PhaseTimes times;
  if (phases_.empty()) return times;
  absl::Status status;
  if (phases_.back() == nullptr) {
    phases_.pop_back();  // nothing has been enqueued since
  } else {
    status = Mark();
  }
  if (status.ok()) status = WaitForEvent(events_[marks_ - 1]);
  for (size_t i = 0; status.ok() && i < phases_.size(); ++i) {
    float milliseconds = 0;
    status = ToStatus(
        cudaEventElapsedTime(&milliseconds, events_[i], events_[i + 1]),
        "event");
    if (phases_[i] != nullptr) {
      times.*phases_[i] += absl::Milliseconds(milliseconds);
    }
  }
  phases_.clear();
  marks_ = 0;
  if (!status.ok()) return status;
  return times;
}

}  // namespace attnd::cuda
