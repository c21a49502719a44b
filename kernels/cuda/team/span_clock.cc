#include "kernels/cuda/team/span_clock.h"

#include "kernels/cuda/device/status.h"

namespace attnd::cuda {

SpanClock::~SpanClock() {
  for (cudaEvent_t event : {first_, last_}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
}

absl::Status SpanClock::Record(cudaEvent_t& event) {
  if (event == nullptr) {
    absl::Status status =
        ToStatus(cudaEventCreateWithFlags(&event, cudaEventDefault), "event");
    if (!status.ok()) return status;
  }
  return ToStatus(cudaEventRecord(event, stream_), "event");
}

absl::Status SpanClock::Begin() {
  if (begun_) return absl::OkStatus();
  absl::Status status = Record(first_);
  begun_ = status.ok();
  return status;
}

absl::Status SpanClock::End() {
  absl::Status status = Record(last_);
  ended_ = status.ok();
  return status;
}

absl::StatusOr<absl::Duration> SpanClock::Finish() {
  return FinishSince(*this);
}

absl::StatusOr<absl::Duration> SpanClock::FinishSince(const SpanClock& first) {
  const bool any = begun_ && ended_ && first.begun_;
  begun_ = ended_ = false;
  if (!any) return absl::ZeroDuration();
  float milliseconds = 0;
  absl::Status status = ToStatus(
      cudaEventElapsedTime(&milliseconds, first.first_, last_), "event");
  if (!status.ok()) return status;
  return absl::Milliseconds(milliseconds);
}

}  // namespace attnd::cuda
