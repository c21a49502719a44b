#ifndef ATTND_TESTS_KERNELS_CUDA_DEVICE_RUNNER_H_
#define ATTND_TESTS_KERNELS_CUDA_DEVICE_RUNNER_H_

// Runs problems that live in host memory on the first GPU, through the calls
// that a CUDA stream of the service makes.

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/cuda/backward.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/forward.h"

namespace attnd::testing {

// False without a driver, too.
bool HasGpu();

// Fills the scratch that naive attention of the group will take with NaN, so
// that what is read before it is written shows in the results. compute-
// sanitizer's initcheck cannot judge that where cuBLAS multiplies: it misses
// what some of that library's kernels store.
absl::Status PoisonNaiveScratch(absl::Span<const ForwardArgs> group,
                                cuda::Workspace& workspace);

// The same with what backward of the group will take.
absl::Status PoisonBackwardScratch(absl::Span<const BackwardArgs> group,
                                   Algorithm algorithm,
                                   cuda::Workspace& workspace);

// For one thread. An INTERNAL error leaves the process without its GPU: every
// later call fails.
class DeviceRunner {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceRunner>> Create();
  ~DeviceRunner();
  DeviceRunner(const DeviceRunner&) = delete;
  DeviceRunner& operator=(const DeviceRunner&) = delete;

  // Copies everything that the group views to the device, runs it and copies
  // the outputs back. INTERNAL also when something else was written to. Naive
  // attention finds its scratch poisoned.
  absl::StatusOr<cuda::LaunchCounts> Forward(
      absl::Span<const ForwardArgs> group,
      Algorithm algorithm = Algorithm::kAuto);

  // The same for many groups, one after another, with no wait between them.
  using Groups = std::vector<std::vector<ForwardArgs>>;
  absl::StatusOr<std::vector<cuda::LaunchCounts>> ForwardEach(
      const Groups& groups, Algorithm algorithm = Algorithm::kAuto);

  // The same through another function than EnqueueForward.
  using Enqueue = std::function<absl::StatusOr<cuda::LaunchCounts>(
      absl::Span<const ForwardArgs>, cuda::Workspace&)>;
  absl::StatusOr<std::vector<cuda::LaunchCounts>> ForwardEach(
      const Groups& groups, const Enqueue& enqueue);

  // The same of backward, which finds its scratch poisoned.
  absl::StatusOr<cuda::LaunchCounts> Backward(
      absl::Span<const BackwardArgs> group, const GroupOptions& options = {});

  // Through another function than EnqueueBackward; nothing is poisoned.
  absl::StatusOr<std::vector<cuda::LaunchCounts>> BackwardEach(
      const std::vector<std::vector<BackwardArgs>>& groups,
      const std::function<absl::StatusOr<cuda::LaunchCounts>(
          absl::Span<const BackwardArgs>, cuda::Workspace&)>& enqueue);

  const cuda::Gpu& gpu() const { return gpu_; }
  cuda::Workspace& workspace() { return *workspace_; }

 private:
  DeviceRunner(const cuda::Gpu& gpu, cudaStream_t stream);
  absl::Status Reserve(int64_t bytes);
  absl::Status Wait();
  template <class Args, class Function>
  absl::StatusOr<std::vector<cuda::LaunchCounts>> RunEach(
      const std::vector<std::vector<Args>>& groups, const Function& enqueue);

  const cuda::Gpu gpu_;
  cudaStream_t stream_;
  std::unique_ptr<cuda::Workspace> workspace_;
  std::byte* memory_ = nullptr;  // tensors
  int64_t memory_bytes_ = 0;
};

// A test that needs a GPU, and skips where there is none.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override;
  DeviceRunner& device() { return *device_; }

 private:
  std::unique_ptr<DeviceRunner> device_;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_DEVICE_RUNNER_H_
