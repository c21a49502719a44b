#include "tests/kernels/cuda/device_runner.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/baselines/naive/naive.h"
#include "kernels/cuda/device/status.h"
#include "tests/kernels/cuda/group_image.h"

namespace attnd::testing {

using cuda::LaunchCounts;
using cuda::ToStatus;

namespace {

absl::Status Poison(int64_t bytes, cuda::Workspace& workspace) {
  if (bytes == 0) return absl::OkStatus();
  absl::StatusOr<std::byte*> scratch = workspace.Scratch(bytes);
  if (!scratch.ok()) return scratch.status();
  return ToStatus(cudaMemsetAsync(*scratch, 0xff, bytes, workspace.stream()),
                  "poisoning scratch");
}

}  // namespace

bool HasGpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

absl::Status PoisonNaiveScratch(absl::Span<const ForwardArgs> group,
                                cuda::Workspace& workspace) {
  int64_t bytes = 0;
  for (const ForwardArgs& args : group)
    bytes = std::max(bytes, cuda::NaiveScratchBytes(args.problem));
  return Poison(bytes, workspace);
}

absl::Status PoisonBackwardScratch(absl::Span<const BackwardArgs> group,
                                   Algorithm algorithm,
                                   cuda::Workspace& workspace) {
  // More than problems that share launches take together.
  constexpr int64_t kShared = int64_t{96} << 20;
  int64_t largest = 0, together = 0;
  for (const BackwardArgs& args : group) {
    const int64_t bytes = cuda::BackwardScratchBytes(args.problem, algorithm);
    largest = std::max(largest, bytes);
    together = std::min(together + bytes, kShared);
  }
  return Poison(std::max(largest, together), workspace);
}

absl::StatusOr<std::unique_ptr<DeviceRunner>> DeviceRunner::Create() {
  absl::Status status = ToStatus(cudaSetDevice(0), "choosing the GPU");
  if (!status.ok()) return status;
  const absl::StatusOr<cuda::Gpu> gpu = cuda::DescribeGpu(0);
  if (!gpu.ok()) return gpu.status();
  cudaStream_t stream = nullptr;
  status = ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                    "creating a stream");
  if (!status.ok()) return status;
  return std::unique_ptr<DeviceRunner>(new DeviceRunner(*gpu, stream));
}

DeviceRunner::DeviceRunner(const cuda::Gpu& gpu, cudaStream_t stream)
    : gpu_(gpu),
      stream_(stream),
      workspace_(std::make_unique<cuda::Workspace>(stream)) {}

DeviceRunner::~DeviceRunner() {
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  workspace_.reset();
  EXPECT_EQ(cudaFree(memory_), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
}

absl::Status DeviceRunner::Reserve(int64_t bytes) {
  if (bytes <= memory_bytes_) return absl::OkStatus();
  absl::Status status = ToStatus(cudaFree(memory_), "freeing tensors");
  if (!status.ok()) return status;
  memory_ = nullptr;
  memory_bytes_ = 0;
  void* memory = nullptr;
  status = ToStatus(cudaMalloc(&memory, bytes), "memory for tensors");
  if (!status.ok()) return status;
  memory_ = static_cast<std::byte*>(memory);
  memory_bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status DeviceRunner::Wait() {
  absl::Status status = ToStatus(cudaStreamSynchronize(stream_), "running");
  workspace_->Recycle();
  return status;
}

absl::StatusOr<LaunchCounts> DeviceRunner::Forward(
    absl::Span<const ForwardArgs> group, Algorithm algorithm) {
  auto counts = ForwardEach({{group.begin(), group.end()}}, algorithm);
  if (!counts.ok()) return counts.status();
  return counts->front();
}

absl::StatusOr<std::vector<LaunchCounts>> DeviceRunner::ForwardEach(
    const Groups& groups, Algorithm algorithm) {
  return ForwardEach(
      groups,
      [this, algorithm](
          absl::Span<const ForwardArgs> group,
          cuda::Workspace& workspace) -> absl::StatusOr<LaunchCounts> {
        if (algorithm == Algorithm::kNaive) {
          absl::Status status = PoisonNaiveScratch(group, workspace);
          if (!status.ok()) return status;
        }
        return cuda::EnqueueForward(group, algorithm, gpu_, workspace);
      });
}

absl::StatusOr<std::vector<LaunchCounts>> DeviceRunner::ForwardEach(
    const Groups& groups, const Enqueue& enqueue) {
  return RunEach(groups, enqueue);
}

absl::StatusOr<LaunchCounts> DeviceRunner::Backward(
    absl::Span<const BackwardArgs> group, const GroupOptions& options) {
  auto counts = BackwardEach(
      {{group.begin(), group.end()}},
      [this, &options](
          absl::Span<const BackwardArgs> on_device,
          cuda::Workspace& workspace) -> absl::StatusOr<LaunchCounts> {
        absl::Status status =
            PoisonBackwardScratch(on_device, options.algorithm, workspace);
        if (!status.ok()) return status;
        return cuda::EnqueueBackward(on_device, options, gpu_, workspace);
      });
  if (!counts.ok()) return counts.status();
  return counts->front();
}

absl::StatusOr<std::vector<LaunchCounts>> DeviceRunner::BackwardEach(
    const std::vector<std::vector<BackwardArgs>>& groups,
    const std::function<absl::StatusOr<LaunchCounts>(
        absl::Span<const BackwardArgs>, cuda::Workspace&)>& enqueue) {
  return RunEach(groups, enqueue);
}

template <class Args, class Function>
absl::StatusOr<std::vector<LaunchCounts>> DeviceRunner::RunEach(
    const std::vector<std::vector<Args>>& groups, const Function& enqueue) {
  std::vector<Args> all;
  for (const auto& group : groups) {
    all.insert(all.end(), group.begin(), group.end());
  }
  GroupImage<Args> image(all);
  const int64_t bytes = static_cast<int64_t>(image.bytes().size());
  if (absl::Status s = Reserve(bytes); !s.ok()) return s;
  absl::Status status =
      ToStatus(cudaMemcpyAsync(memory_, image.bytes().data(), bytes,
                               cudaMemcpyHostToDevice, stream_),
               "copying tensors to the device");
  if (!status.ok()) return status;

  const std::vector<Args> rebound = image.Rebind(memory_);
  std::vector<LaunchCounts> counts;
  size_t first = 0;
  for (const auto& group : groups) {
    auto enqueued = enqueue(
        absl::MakeConstSpan(rebound).subspan(first, group.size()), *workspace_);
    if (!enqueued.ok()) {
      Wait().IgnoreError();  // what was enqueued reads the image
      return enqueued.status();
    }
    counts.push_back(*enqueued);
    first += group.size();
  }
  if (absl::Status s = Wait(); !s.ok()) return s;

  std::vector<std::byte> after(bytes);
  status =
      ToStatus(cudaMemcpy(after.data(), memory_, bytes, cudaMemcpyDeviceToHost),
               "copying tensors to the host");
  if (status.ok()) status = image.TakeOutputs(after);
  if (!status.ok()) return status;
  return counts;
}

void DeviceTest::SetUp() {
  if (!HasGpu()) GTEST_SKIP() << "no GPU that CUDA can use";
  auto device = DeviceRunner::Create();
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
}

}  // namespace attnd::testing
