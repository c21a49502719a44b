#ifndef ATTND_TESTS_EMULATION_EMULATED_GPU_H_
#define ATTND_TESTS_EMULATION_EMULATED_GPU_H_

// Runs problems in host memory through the calls that a CUDA stream of the
// service makes, on kernels that are compiled for the CPU.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/launch/rest.h"

namespace attnd::emulation {

// What kernels are made for. Few multiprocessors, so that blocks which stay
// have many tiles each; and no L2 cache that would keep a head's rows.
inline constexpr cuda::Gpu kHopper = {
    .capability = 90, .multiprocessors = 3, .shared_bytes = 227 << 10};
// Two heads of a few blocks of columns have place beside each other.
inline constexpr cuda::Gpu kLargeHopper = {.capability = 90,
                                           .multiprocessors = 9,
                                           .shared_bytes = 227 << 10,
                                           .cache_bytes = 50 << 20};
// So few that slices are small.
inline constexpr cuda::Gpu kSmallHopper = {
    .capability = 90, .multiprocessors = 2, .shared_bytes = 227 << 10};
inline constexpr cuda::Gpu kAmpere = {
    .capability = 80, .multiprocessors = 3, .shared_bytes = 163 << 10};
inline constexpr cuda::Gpu kSmallAmpere = {
    .capability = 86, .multiprocessors = 3, .shared_bytes = 99 << 10};

// For one at a time.
class EmulatedGpu {
 public:
  // What happens when follows from the seed.
  EmulatedGpu(const cuda::Gpu& gpu, uint64_t seed);
  ~EmulatedGpu();
  EmulatedGpu(const EmulatedGpu&) = delete;
  EmulatedGpu& operator=(const EmulatedGpu&) = delete;

  // INTERNAL also where a kernel breaks a rule, or is not among those that are
  // built. Scratch is NaN to begin with.
  absl::Status Forward(absl::Span<const ForwardArgs> group);
  absl::Status Backward(absl::Span<const BackwardArgs> group,
                        bool deterministic);

  // The same in slices, each of which is over before the next is enqueued;
  // returns how many there were.
  absl::StatusOr<int> ForwardInSlices(absl::Span<const ForwardArgs> group,
                                      const cuda::SliceOptions& slices);
  absl::StatusOr<int> BackwardInSlices(absl::Span<const BackwardArgs> group,
                                       bool deterministic,
                                       const cuda::SliceOptions& slices);

 private:
  absl::Status Poison(absl::Span<const ForwardArgs> group);
  absl::Status Poison(absl::Span<const BackwardArgs> group);
  absl::Status Poison(int64_t scratch_bytes);
  absl::StatusOr<int> RunSlices(
      absl::StatusOr<std::unique_ptr<cuda::Rest>> rest);
  absl::Status Wait(const absl::Status& enqueued);

  const cuda::Gpu gpu_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<cuda::Workspace> workspace_;
};

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_EMULATED_GPU_H_
