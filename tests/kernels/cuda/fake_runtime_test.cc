// Streams on a runtime that fails when it is told to, and that does everything
// as late as it may.

#include "tests/kernels/cuda/fake_runtime.h"

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/backward.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/device/pinned_memory.h"
#include "kernels/cuda/device/pinning.h"
#include "kernels/cuda/device/status.h"
#include "kernels/cuda/forward.h"

namespace attnd::cuda {
namespace {

// What the next BeginForward or BeginBackward does with its workspace.
enum class Kernel { kScratch, kFault, kRefused };
Kernel next_kernel = Kernel::kScratch;
int64_t next_scratch = 0;
// How many slices it has, and how many of them the device has come to the end
// of.
int next_slices = 1;
int slices_over = 0;

absl::Status EnqueueSlice(Workspace& workspace) {
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
  testing::EnqueueFake(workspace.stream(), [] { ++slices_over; });
  return absl::OkStatus();
}

class FakeRest : public Rest {
 public:
  FakeRest(int slices, Workspace& workspace)
      : slices_(slices), workspace_(workspace) {}

  absl::Status EnqueueSlice() override {
    ++enqueued_;
    return cuda::EnqueueSlice(workspace_);
  }
  double share() const override {
    return static_cast<double>(enqueued_) / slices_;
  }

 private:
  const int slices_;
  int enqueued_ = 0;
  Workspace& workspace_;
};

absl::StatusOr<std::unique_ptr<Rest>> BeginNext(Workspace& workspace) {
  return BeginRest(std::make_unique<FakeRest>(next_slices, workspace));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Rest>> BeginForward(
    absl::Span<const ForwardArgs>, Algorithm, const Gpu&, Workspace& workspace,
    const SliceOptions&) {
  return BeginNext(workspace);
}

absl::StatusOr<std::unique_ptr<Rest>> BeginBackward(
    absl::Span<const BackwardArgs>, const GroupOptions&, const Gpu&,
    Workspace& workspace, const SliceOptions&) {
  return BeginNext(workspace);
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
    next_slices = 1;
    slices_over = 0;
    NewStream({.under_way = 1});
  }
  void TearDown() override {
    testing::RepairFakeDevice();
    testing::SetFakeDeviceMemory(int64_t{1} << 30);
    testing::SetFakePinnedMemory(int64_t{1} << 30);
  }

  void NewStream(const SliceOptions& slices) {
    stream_ = CudaStream::Create(0, Gpu(), slices).value();
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

TEST_F(FakeRuntimeTest, SaysWhetherAllIsOver) {
  EXPECT_TRUE(stream_->EndsWithin(absl::ZeroDuration()));
  ASSERT_TRUE(Upload(kMiB).ok());
  ASSERT_TRUE(Forward().ok());
  EXPECT_FALSE(stream_->EndsWithin(absl::ZeroDuration()));
  // More may come all the same.
  ASSERT_TRUE(Backward().ok());
  EXPECT_TRUE(stream_->EndsWithin(absl::Minutes(1)));
  const absl::StatusOr<PhaseTimes> times = stream_->Wait();
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_GT(times->upload, absl::ZeroDuration());
  EXPECT_GT(times->compute, absl::ZeroDuration());
  EXPECT_TRUE(stream_->EndsWithin(absl::ZeroDuration()));
}

TEST_F(FakeRuntimeTest, AFaultIsOver) {
  next_kernel = Kernel::kFault;
  ASSERT_TRUE(Forward().ok());
  EXPECT_TRUE(stream_->EndsWithin(absl::Minutes(1)));
  EXPECT_EQ(stream_->Wait().status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(stream_->EndsWithin(absl::ZeroDuration()));
}

// Pauses once `slices` have been enqueued after the first.
std::function<bool()> PauseAfter(int slices) {
  return [left = slices]() mutable { return left-- == 0; };
}
bool Never() { return false; }

TEST_F(FakeRuntimeTest, AGroupOfOneSliceLeavesNothingToProceedWith) {
  const int64_t events = FakeCuda().events_ever;
  ASSERT_TRUE(Forward().ok());
  const int64_t phase = 1;  // the event with which compute begins
  EXPECT_EQ(FakeCuda().events_ever, events + phase);
  const auto share = stream_->Proceed([] {
    ADD_FAILURE() << "asked whether to pause";
    return true;
  });
  ASSERT_TRUE(share.ok()) << share.status();
  EXPECT_EQ(*share, 1);
  EXPECT_EQ(FakeCuda().events_ever, events + phase);
}

TEST_F(FakeRuntimeTest, ProceedEnqueuesASliceWhenTheOneBeforeIsOver) {
  next_slices = 5;
  ASSERT_TRUE(Forward().ok());
  EXPECT_EQ(slices_over, 0);
  int asked = 0;
  const auto share = stream_->Proceed([&] {
    EXPECT_EQ(slices_over, ++asked);
    return false;
  });
  ASSERT_TRUE(share.ok()) << share.status();
  EXPECT_EQ(*share, 1);
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(slices_over, 4);  // the last one is under way
  ASSERT_TRUE(stream_->Wait().ok());
  EXPECT_EQ(slices_over, 5);
}

TEST_F(FakeRuntimeTest, TwoSlicesMayBeUnderWay) {
  NewStream({.time = absl::ZeroDuration(), .under_way = 2});
  next_slices = 6;
  ASSERT_TRUE(Backward().ok());
  int asked = 0;
  const auto share = stream_->Proceed([&] {
    if (asked == 0) {
      EXPECT_EQ(slices_over, 0);
    }
    // The one that runs may end while it should be half over.
    EXPECT_GE(slices_over, asked);
    EXPECT_LE(slices_over, ++asked);
    return false;
  });
  ASSERT_TRUE(share.ok()) << share.status();
  EXPECT_EQ(*share, 1);
  EXPECT_LT(slices_over, 6);
}

TEST_F(FakeRuntimeTest, TheSecondSliceIsNotEnqueuedBeforeTheFirstIsHalfOver) {
  NewStream({.time = absl::Hours(1), .under_way = 2});
  next_slices = 3;
  ASSERT_TRUE(Forward().ok());
  // It ends before that.
  const auto share = stream_->Proceed([] { return slices_over == 1; });
  ASSERT_TRUE(share.ok()) << share.status();
  EXPECT_LT(*share, 0.5);
  // From a pause it goes on, though it waited for nothing that was under way.
  EXPECT_EQ(*stream_->Proceed(Never), 1);
}

TEST_F(FakeRuntimeTest, AFaultWhileASliceIsAwaitedIsInternal) {
  NewStream({.time = absl::Hours(1), .under_way = 2});
  next_slices = 3;
  next_kernel = Kernel::kFault;
  ASSERT_TRUE(Forward().ok());
  EXPECT_EQ(stream_->Proceed(Never).status().code(),
            absl::StatusCode::kInternal);
}

TEST_F(FakeRuntimeTest, PausedAfterEverySliceItSaysHowMuchIsEnqueued) {
  next_slices = 4;
  ASSERT_TRUE(Forward().ok());
  for (double share : {0.25, 0.5, 0.75}) {
    const auto paused = stream_->Proceed([] { return true; });
    ASSERT_TRUE(paused.ok()) << paused.status();
    EXPECT_EQ(*paused, share);
    const auto next = stream_->Proceed(PauseAfter(1));
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(*next, share + 0.25);
  }
  EXPECT_EQ(*stream_->Proceed([] { return true; }), 1);
  ASSERT_TRUE(stream_->Wait().ok());
  EXPECT_EQ(slices_over, 4);
}

TEST_F(FakeRuntimeTest, ProceedMayComeFromAnotherThread) {
  next_slices = 3;
  ASSERT_TRUE(Forward().ok());
  std::thread([this] {
    EXPECT_LT(*stream_->Proceed(PauseAfter(1)), 1);
  }).join();
  std::thread([this] { EXPECT_EQ(*stream_->Proceed(Never), 1); }).join();
}

TEST_F(FakeRuntimeTest, NothingElseIsEnqueuedBeforeTheRest) {
  next_slices = 3;
  ASSERT_TRUE(Forward().ok());
  std::byte host{};
  for (const absl::Status& status :
       {Forward(), Backward(), stream_->Download(&host, {&host, 1})}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(*stream_->Proceed(Never), 1);
  EXPECT_TRUE(Forward().ok());
}

TEST_F(FakeRuntimeTest, ResetGivesARestUp) {
  next_slices = 3;
  ASSERT_TRUE(Forward().ok());
  ASSERT_TRUE(stream_->Wait().ok());
  stream_->Reset();
  EXPECT_EQ(slices_over, 1);
  EXPECT_EQ(*stream_->Proceed(Never), 1);
  EXPECT_TRUE(Forward().ok());
}

TEST_F(FakeRuntimeTest, NoMemoryForTheFirstSliceIsNoFault) {
  next_slices = 3;
  testing::SetFakeDeviceMemory(4 * kMiB);
  next_scratch = 5 * kMiB;
  EXPECT_EQ(Forward().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*stream_->Proceed(Never), 1);  // nothing has begun
  next_scratch = kMiB;
  ASSERT_TRUE(Forward().ok());
  EXPECT_EQ(*stream_->Proceed(Never), 1);
}

TEST_F(FakeRuntimeTest, AFaultBetweenSlicesIsInternal) {
  next_slices = 3;
  ASSERT_TRUE(Forward().ok());
  next_kernel = Kernel::kFault;
  EXPECT_EQ(stream_->Proceed(Never).status().code(),
            absl::StatusCode::kInternal);
}

TEST_F(FakeRuntimeTest, ARefusedSliceIsInternal) {
  next_slices = 3;
  ASSERT_TRUE(Forward().ok());
  next_kernel = Kernel::kRefused;
  EXPECT_EQ(stream_->Proceed(Never).status().code(),
            absl::StatusCode::kInternal);
}

TEST_F(FakeRuntimeTest, MarksAreInOrderAndStartAnewWithReset) {
  for (int batch = 0; batch < 2; ++batch) {
    slices_over = 0;
    for (int n = 0; n < 3; ++n) {
      ASSERT_TRUE(Forward().ok());
      EXPECT_EQ(stream_->Mark().value(), n);
    }
    ASSERT_TRUE(stream_->WaitFor(1).ok());
    EXPECT_EQ(slices_over, 2);
    ASSERT_TRUE(stream_->WaitFor(0).ok());
    EXPECT_EQ(slices_over, 2);
    ASSERT_TRUE(stream_->WaitFor(2).ok());
    EXPECT_EQ(slices_over, 3);
    ASSERT_TRUE(stream_->Wait().ok());
    stream_->Reset();
  }
}

TEST_F(FakeRuntimeTest, AMarkComesAfterWhatHasBeenUploaded) {
  absl::StatusOr<std::byte*> device = stream_->Allocate(100);
  ASSERT_TRUE(device.ok());
  const std::vector<std::byte> host(100, std::byte{7});
  const ConstHostSpan span(host);
  ASSERT_TRUE(stream_->Upload({&span, 1}, *device).ok());
  const int mark = stream_->Mark().value();
  ASSERT_TRUE(stream_->WaitFor(mark).ok());
  EXPECT_EQ((*device)[99], std::byte{7});
}

TEST_F(FakeRuntimeTest, AWarmStreamCreatesNoEventForMarksAndSlices) {
  int64_t warm = 0;
  for (int batch = 0; batch < 3; ++batch) {
    next_slices = 5;
    ASSERT_TRUE(Forward().ok());
    EXPECT_EQ(*stream_->Proceed(Never), 1);
    for (int n = 0; n < 4; ++n) ASSERT_TRUE(stream_->Mark().ok());
    ASSERT_TRUE(stream_->Wait().ok());
    stream_->Reset();
    if (batch == 0) warm = FakeCuda().events_ever;
  }
  EXPECT_EQ(FakeCuda().events_ever, warm);
}

TEST_F(FakeRuntimeTest, BuffersSayWhetherMemoryOrTheDeviceIsGone) {
  const int64_t pinned = FakeCuda().pinned_bytes;
  testing::SetFakePinnedMemory(pinned + kMiB);
  EXPECT_EQ(Landing::Create(0).status().code(),
            absl::StatusCode::kResourceExhausted);
  testing::SetFakePinnedMemory(int64_t{1} << 30);
  const std::shared_ptr<Landing> landing = Landing::Create(0).value();
  testing::SetFakeDeviceMemory(FakeCuda().device_bytes + kMiB);
  EXPECT_EQ(CudaBuffer::Create(landing, 2 * kMiB).status().code(),
            absl::StatusCode::kResourceExhausted);
  const auto buffer = CudaBuffer::Create(landing, 1000).value();
  testing::SetFakeDeviceMemory(int64_t{1} << 30);
  next_kernel = Kernel::kFault;
  ASSERT_TRUE(Forward().ok());
  EXPECT_FALSE(stream_->Wait().ok());
  const std::vector<std::byte> host(1000);
  const ConstHostSpan span(host);
  EXPECT_EQ(buffer->Write(0, {&span, 1}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(stream_->Use(buffer).code(), absl::StatusCode::kInternal);
}

TEST_F(FakeRuntimeTest, PinningSaysWhetherMemoryOrTheDeviceIsGone) {
  std::vector<std::byte> memory(2 * kMiB);
  const HostSpan span(memory);
  testing::SetFakePinnedMemory(FakeCuda().pinned_bytes + kMiB);
  EXPECT_EQ(PinMemory(0, span).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FakeCuda().registered_bytes, 0);
  ASSERT_TRUE(PinMemory(0, span.subspan(0, kMiB)).ok());
  EXPECT_EQ(FakeCuda().registered_bytes, kMiB);
  next_kernel = Kernel::kFault;
  ASSERT_TRUE(Forward().ok());
  EXPECT_FALSE(stream_->Wait().ok());
  EXPECT_EQ(PinMemory(0, span.subspan(kMiB, kMiB)).code(),
            absl::StatusCode::kInternal);
  UnpinMemory(0, span.subspan(0, kMiB));  // does not, and that is no error
  testing::RepairFakeDevice();
  UnpinMemory(0, span.subspan(0, kMiB));
  EXPECT_EQ(FakeCuda().registered_bytes, 0);
}

// What was gathered before it is there for the kernel, as is what it brings.
TEST_F(FakeRuntimeTest, APinnedUploadAndAStagedOneComeBeforeTheKernel) {
  std::vector<std::byte> staged(100, std::byte{1}), pinned(100, std::byte{2});
  std::byte* first = stream_->Allocate(100).value();
  std::byte* second = stream_->Allocate(100).value();
  const ConstHostSpan span(staged);
  ASSERT_TRUE(stream_->Upload({&span, 1}, first).ok());
  ASSERT_TRUE(stream_->UploadPinned(pinned, second).ok());
  ASSERT_TRUE(Forward().ok());
  ASSERT_TRUE(stream_->Wait().ok());
  EXPECT_EQ(slices_over, 1);
  EXPECT_EQ(first[99], std::byte{1});
  EXPECT_EQ(second[99], std::byte{2});
}

TEST_F(FakeRuntimeTest, BuffersLeaveNothingBehind) {
  const FakeCudaUse before = FakeCuda();
  {
    const std::shared_ptr<Landing> landing = Landing::Create(0).value();
    auto buffer = CudaBuffer::Create(landing, 1000).value();
    ASSERT_TRUE(stream_->Use(std::move(buffer)).ok());
    ASSERT_TRUE(stream_->Wait().ok());
    stream_->Reset();
  }
  const FakeCudaUse after = FakeCuda();
  EXPECT_EQ(after.device_bytes, before.device_bytes);
  EXPECT_EQ(after.pinned_bytes, before.pinned_bytes);
  EXPECT_EQ(after.streams, before.streams);
}

TEST_F(FakeRuntimeTest, BackwardIsTimedAsCompute) {
  ASSERT_TRUE(Upload(kMiB).ok());
  ASSERT_TRUE(Backward().ok());
  const PhaseTimes times = stream_->Wait().value();
  EXPECT_GT(times.compute, absl::ZeroDuration());
}

}  // namespace
}  // namespace attnd::cuda
