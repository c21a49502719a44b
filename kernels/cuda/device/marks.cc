#include "kernels/cuda/device/marks.h"

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// How long to ask again and again before sleeping.
constexpr absl::Duration kPollTime = absl::Microseconds(200);

// How long to sleep before looking again, where nobody waits for the result.
constexpr absl::Duration kNap = absl::Microseconds(100);

cudaError_t Query(cudaEvent_t event) {
  const cudaError_t state = cudaEventQuery(event);
  // No error, but it would be taken for one of a later call.
  if (state == cudaErrorNotReady) (void)cudaGetLastError();
  return state;
}

cudaError_t Poll(cudaEvent_t event, absl::Duration time) {
  const absl::Time end = MonotonicNow() + time;
  do {
    const cudaError_t state = Query(event);
    if (state != cudaErrorNotReady) return state;
  } while (MonotonicNow() < end);
  return cudaErrorNotReady;
}

}  // namespace

bool HappensWithin(cudaEvent_t event, absl::Duration time) {
  return Poll(event, time) != cudaErrorNotReady;
}

absl::Status WaitForEvent(cudaEvent_t event) {
  cudaError_t state = Poll(event, kPollTime);
  if (state == cudaErrorNotReady) state = cudaEventSynchronize(event);
  return ToStatus(state, "the device");
}

Marks::~Marks() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

absl::StatusOr<int> Marks::Add() {
  if (static_cast<size_t>(count_) == events_.size()) {
    cudaEvent_t event = nullptr;
    absl::Status status =
        ToStatus(cudaEventCreateWithFlags(
                     &event, cudaEventDisableTiming | cudaEventBlockingSync),
                 "mark");
    if (!status.ok()) return status;
    events_.push_back(event);
  }
  if (absl::Status status = Move(count_); !status.ok()) return status;
  return count_++;
}

absl::Status Marks::Move(int number) {
  return ToStatus(cudaEventRecord(events_[number], stream_), "mark");
}

absl::Status Marks::WaitFor(int number) const {
  return WaitForEvent(events_[number]);
}

absl::Status Marks::WaitUntil(int number, absl::Time until) const {
  while (true) {
    const absl::Duration left = until - MonotonicNow();
    if (left <= absl::ZeroDuration()) return absl::OkStatus();
    const cudaError_t state = Query(events_[number]);
    if (state != cudaErrorNotReady) return ToStatus(state, "the device");
    std::this_thread::sleep_for(
        absl::ToChronoMicroseconds(std::min(left, kNap)));
  }
}

}  // namespace attnd::cuda
