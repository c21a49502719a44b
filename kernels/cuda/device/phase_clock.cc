#include "kernels/cuda/device/phase_clock.h"

#include <chrono>

#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// How long to ask again and again before sleeping: a small batch is over sooner
// than a sleeping thread would wake.
constexpr std::chrono::microseconds kPollTime{200};

}  // namespace

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

absl::StatusOr<PhaseTimes> PhaseClock::Finish() {
  PhaseTimes times;
  if (phases_.empty()) return times;
  absl::Status status = Mark();
  if (status.ok()) status = WaitForLastMark();
  for (size_t i = 0; status.ok() && i < phases_.size(); ++i) {
    float milliseconds = 0;
    status = ToStatus(
        cudaEventElapsedTime(&milliseconds, events_[i], events_[i + 1]),
        "event");
    times.*phases_[i] += absl::Milliseconds(milliseconds);
  }
  phases_.clear();
  marks_ = 0;
  if (!status.ok()) return status;
  return times;
}

absl::Status PhaseClock::WaitForLastMark() const {
  const cudaEvent_t last = events_[marks_ - 1];
  const auto until = std::chrono::steady_clock::now() + kPollTime;
  while (std::chrono::steady_clock::now() < until) {
    const cudaError_t state = cudaEventQuery(last);
    if (state != cudaErrorNotReady) return ToStatus(state, "the device");
    // No error, but it would be taken for one of a later call.
    (void)cudaGetLastError();
  }
  return ToStatus(cudaEventSynchronize(last), "the device");
}

}  // namespace attnd::cuda
