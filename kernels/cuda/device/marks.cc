#include "kernels/cuda/device/marks.h"

#include <chrono>

#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// How long to ask again and again before sleeping.
constexpr std::chrono::microseconds kPollTime{200};

}  // namespace

absl::Status WaitForEvent(cudaEvent_t event) {
  const auto until = std::chrono::steady_clock::now() + kPollTime;
  while (std::chrono::steady_clock::now() < until) {
    const cudaError_t state = cudaEventQuery(event);
    if (state != cudaErrorNotReady) return ToStatus(state, "the device");
    // No error, but it would be taken for one of a later call.
    (void)cudaGetLastError();
  }
  return ToStatus(cudaEventSynchronize(event), "the device");
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

}  // namespace attnd::cuda
