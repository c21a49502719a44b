// Streams on a runtime that fails when it is told to, and that does everything
// as late as it may.

#include "tests/kernels/cuda/fake_runtime.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/backward.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device/pinned_memory.h"
#include "kernels/cuda/device/status.h"
#include "kernels/cuda/forward.h"

namespace attnd::cuda {
namespace {

// What the next EnqueueForward or EnqueueBackward does with its workspace.
enum class Kernel { kScratch, kFault, kRefused };
Kernel next_kernel = Kernel::kScratch;
int64_t next_scratch = 0;

absl::StatusOr<LaunchCounts> EnqueueNext(Workspace& workspace) {
  if (next_kernel == Kernel::kRefused) {
    return ToStatus(cudaErrorInvalidConfiguration, "launch");
  }
  absl::StatusOr<std::byte*> scratch = workspace.Scratch(next_scratch);
  if (!scratch.ok()) return scratch.status();
  const auto block = workspace.CopyToDevice(std::vector<std::byte>(100'000));
  if (!block.ok()) return block.status();
  if (next_kernel == Kernel::kFault) {
    testing::BreakFakeDevice(workspace.stream(), cudaErrorIllegalAddress);
  }
  return LaunchCounts{1, 1};
}

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueForward(absl::Span<const ForwardArgs>,
                                            Algorithm, const Gpu&,
                                            Workspace& workspace) {
  return EnqueueNext(workspace);
}

absl::StatusOr<LaunchCounts> EnqueueBackward(absl::Span<const BackwardArgs>,
                                             const GroupOptions&, const Gpu&,
                                             Workspace& workspace) {
  return EnqueueNext(workspace);
}

namespace {

using testing::FakeCuda;
using testing::FakeCudaUse;

constexpr int64_t kMiB = int64_t{1} << 20;

class FakeRuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    next_kernel = Kernel::kScratch;
    next_scratch = kMiB;
    stream_ = CudaStream::Create(0, Gpu()).value();
  }
  void TearDown() override {
    testing::RepairFakeDevice();
    testing::SetFakeDeviceMemory(int64_t{1} << 30);
    testing::SetFakePinnedMemory(int64_t{1} << 30);
  }

  absl::Status Upload(int64_t bytes) {
    absl::StatusOr<std::byte*> device = stream_->Allocate(bytes);
    if (!device.ok()) return device.status();
    const std::vector<std::byte> host(bytes);
    const ConstHostSpan span(host);
    return stream_->Upload({&span, 1}, *device);
  }
  absl::Status Forward() { return stream_->Forward({}, {}); }
  absl::Status Backward() { return stream_->Backward({}, {}); }

  std::unique_ptr<CudaStream> stream_;
};

TEST_F(FakeRuntimeTest, EverythingComesBack) {
  ASSERT_TRUE(Upload(5 * kMiB).ok());
  ASSERT_TRUE(Forward().ok());
  ASSERT_TRUE(Backward().ok());
  stream_ = nullptr;
  const FakeCudaUse use = FakeCuda();
  EXPECT_EQ(use.device_bytes, 0);
  EXPECT_EQ(use.pinned_bytes, 0);
  EXPECT_EQ(use.streams, 0);
  EXPECT_EQ(use.events, 0);
}

TEST_F(FakeRuntimeTest, TensorsComeBackWithReset) {
  const int64_t before = FakeCuda().device_bytes;
  ASSERT_TRUE(Upload(5 * kMiB).ok());
  ASSERT_TRUE(stream_->Wait().ok());
  EXPECT_GE(FakeCuda().device_bytes, before + 5 * kMiB);
  stream_->Reset();
  ASSERT_TRUE(Upload(1).ok());  // comes after, in the stream
  ASSERT_TRUE(stream_->Wait().ok());
  EXPECT_LE(FakeCuda().device_bytes, before + kMiB);
}

TEST_F(FakeRuntimeTest, AWarmStreamPinsNothing) {
  int64_t warm = 0;
  for (int batch = 0; batch < 3; ++batch) {
    ASSERT_TRUE(Upload(20 * kMiB).ok());
    ASSERT_TRUE(Forward().ok());
    ASSERT_TRUE(stream_->Wait().ok());
    stream_->Reset();
    if (batch == 0) warm = FakeCuda().pinned_blocks_ever;
  }
  EXPECT_EQ(FakeCuda().pinned_blocks_ever, warm);
}

TEST_F(FakeRuntimeTest, StagingIsAllThatUploadsPin) {
  const int64_t before = FakeCuda().pinned_bytes;
  ASSERT_TRUE(Upload(50 * kMiB).ok());
  EXPECT_EQ(FakeCuda().pinned_bytes, before);
  EXPECT_EQ(before, Staging::kBlocks * Staging::kBlockBytes);
}

TEST_F(FakeRuntimeTest, ManyTinyTensorsAreOneAllocationAndOneCopy) {
  const FakeCudaUse before = FakeCuda();
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(Upload(i % 300).ok());
  ASSERT_TRUE(stream_->Wait().ok());
  EXPECT_EQ(FakeCuda().copies_ever, before.copies_ever + 1);
  EXPECT_EQ(FakeCuda().device_blocks_ever, before.device_blocks_ever + 1);
}

TEST_F(FakeRuntimeTest, KeepsLittleScratch) {
  const int64_t before = FakeCuda().device_bytes;
  next_scratch = 300 * kMiB;
  ASSERT_TRUE(Forward().ok());
  ASSERT_TRUE(stream_->Wait().ok());
  stream_->Reset();
  next_scratch = kMiB;
  ASSERT_TRUE(Forward().ok());
  ASSERT_TRUE(stream_->Wait().ok());
  EXPECT_LT(FakeCuda().device_bytes, before + 10 * kMiB);
}

TEST_F(FakeRuntimeTest, NoDeviceMemoryIsNoFault) {
  testing::SetFakeDeviceMemory(4 * kMiB);
  EXPECT_EQ(Upload(5 * kMiB).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(Upload(2 * kMiB).ok());
  next_scratch = 3 * kMiB;
  EXPECT_EQ(Forward().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Backward().code(), absl::StatusCode::kResourceExhausted);
  next_scratch = kMiB;
  EXPECT_TRUE(Forward().ok());
  EXPECT_TRUE(Backward().ok());
  EXPECT_TRUE(stream_->Wait().ok());
}

TEST_F(FakeRuntimeTest, NoPinnedMemoryIsNoStream) {
  testing::SetFakePinnedMemory(FakeCuda().pinned_bytes + kMiB);
  const FakeCudaUse before = FakeCuda();
  EXPECT_EQ(CudaStream::Create(0, Gpu()).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FakeCuda().streams, before.streams);
  PinnedMemory memory(0, 0);
  EXPECT_EQ(memory.Allocate(2 * kMiB), nullptr);
}

TEST_F(FakeRuntimeTest, IdlePinnedMemoryMakesRoomForOtherSizes) {
  PinnedMemory memory(0, 8 * kMiB);
  testing::SetFakePinnedMemory(FakeCuda().pinned_bytes + 4 * kMiB);
  std::byte* small = memory.Allocate(3 * kMiB);
  memory.Free(small, 3 * kMiB);
  std::byte* large = memory.Allocate(4 * kMiB);
  ASSERT_NE(large, nullptr);
  memory.Free(large, 4 * kMiB);
}

TEST_F(FakeRuntimeTest, AFaultIsInternalEverywhereFromThenOn) {
  next_kernel = Kernel::kFault;
  ASSERT_TRUE(Upload(kMiB).ok());
  ASSERT_TRUE(Forward().ok());
  EXPECT_EQ(stream_->Wait().status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Upload(kMiB).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Forward().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Backward().code(), absl::StatusCode::kInternal);
  std::byte host{};
  EXPECT_EQ(stream_->MapOutput({&host, 1}).status().code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(stream_->Download(&host, {&host, 1}).code(),
            absl::StatusCode::kInternal);
  stream_->Reset();
  stream_ = nullptr;
  EXPECT_EQ(FakeCuda().streams, 0);
}

TEST_F(FakeRuntimeTest, ARefusedLaunchIsInternal) {
  next_kernel = Kernel::kRefused;
  ASSERT_TRUE(Upload(kMiB).ok());
  EXPECT_EQ(Forward().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Backward().code(), absl::StatusCode::kInternal);
}

TEST_F(FakeRuntimeTest, BackwardIsTimedAsCompute) {
  ASSERT_TRUE(Upload(kMiB).ok());
  ASSERT_TRUE(Backward().ok());
  const PhaseTimes times = stream_->Wait().value();
  EXPECT_GT(times.compute, absl::ZeroDuration());
}

}  // namespace
}  // namespace attnd::cuda
