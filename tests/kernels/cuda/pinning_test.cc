// Copies from and to memory that was pinned piece by piece. Runs on a GPU, and
// everywhere against fake_runtime.h, which refuses what reaches from one piece
// into the next.

#include "kernels/cuda/device/pinning.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device/gpu.h"
#include "tests/kernels/cuda/shared_pages.h"

namespace attnd::cuda {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kPiece = kPinnedPieceBytes;

using testing::FillRandomly;
using testing::Same;
using testing::SharedPages;

class PinningTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBytes = 2 * kPiece + kMiB;

  void SetUp() override {
    const auto usable = UsableDevices();
    if (!usable.ok()) GTEST_SKIP() << "no GPU here: " << usable.status();
    if (usable->empty()) GTEST_SKIP() << "no GPU that is recent enough here";
    device_ = usable->front();
    stream_ = CudaStream::Create(device_, DescribeGpu(device_).value()).value();
    pages_ = std::make_unique<SharedPages>(kBytes);
    for (HostSpan piece : pages_->pieces()) {
      ASSERT_TRUE(PinMemory(device_, piece).ok());
      pinned_.push_back(piece);
    }
  }
  void TearDown() override {
    stream_ = nullptr;
    for (HostSpan piece : pinned_) UnpinMemory(device_, piece);
  }

  void Fill(uint32_t seed) { FillRandomly(seed, pages_->all()); }

  int device_ = 0;
  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<SharedPages> pages_;
  std::vector<HostSpan> pinned_;
};

// Ranges of the memory that begin, end and reach over boundaries of pieces.
struct Range {
  int64_t at, bytes;
};
constexpr Range kRanges[] = {{0, kPiece},
                             {0, 1},
                             {kPiece - 1, 1},
                             {kPiece - 1, 2},
                             {kPiece - 1000, 2000},
                             {kPiece, kPiece},
                             {kPiece - 77, kPiece + 154},
                             {kPiece / 2, kPiece},
                             {2 * kPiece - 256, 512},
                             {0, 2 * kPiece + kMiB}};

TEST_F(PinningTest, UploadsWhatLiesInSeveralPieces) {
  Fill(1);
  for (const Range& range : kRanges) {
    const ConstHostSpan from = pages_->all().subspan(range.at, range.bytes);
    std::byte* device = stream_->Allocate(range.bytes).value();
    ASSERT_TRUE(stream_->UploadPinned(from, device).ok());
    std::vector<std::byte> got(range.bytes, std::byte{0x5A});
    ASSERT_TRUE(stream_->Download(device, HostSpan(got)).ok());
    ASSERT_TRUE(stream_->Wait().ok());
    stream_->Reset();
    ASSERT_TRUE(Same(from, got)) << range.at << " " << range.bytes;
  }
}

TEST_F(PinningTest, DownloadsOverBoundariesAndNowhereElse) {
  constexpr int64_t kAround = 4096;
  std::vector<std::byte> sent(kBytes);
  const std::vector<std::byte> poisons(kAround, std::byte{0x5A});
  const ConstHostSpan poison(poisons);
  FillRandomly(2, HostSpan(sent));
  for (const Range& range : kRanges) {
    const HostSpan all = pages_->all();
    const int64_t first = std::max<int64_t>(range.at - kAround, 0);
    const int64_t end = range.at + range.bytes;
    const int64_t last = std::min(end + kAround, kBytes);
    std::memset(all.data() + first, 0x5A, last - first);
    const auto from = ConstHostSpan(sent).subspan(0, range.bytes);
    std::byte* device = stream_->Allocate(range.bytes).value();
    ASSERT_TRUE(stream_->Upload({&from, 1}, device).ok());
    ASSERT_TRUE(
        stream_->Download(device, all.subspan(range.at, range.bytes)).ok());
    ASSERT_TRUE(stream_->Wait().ok());
    stream_->Reset();
    ASSERT_TRUE(Same(all.subspan(range.at, range.bytes), from))
        << range.at << " " << range.bytes;
    ASSERT_TRUE(Same(all.subspan(first, range.at - first),
                     poison.subspan(0, range.at - first)));
    ASSERT_TRUE(
        Same(all.subspan(end, last - end), poison.subspan(0, last - end)));
  }
}

// Neighbours on the device, every second one by way of staging, in whichever
// order they come.
TEST_F(PinningTest, PinnedAndStagedUploadsKeepApart) {
  Fill(3);
  constexpr int64_t kTensors = 200;
  std::vector<ConstHostSpan> sent;
  std::vector<std::byte*> device;
  for (int64_t i = 0; i < kTensors; ++i) {
    sent.push_back(pages_->all().subspan(kPiece - 5000 + 611 * i, 1 + 37 * i));
    device.push_back(stream_->Allocate(sent.back().size()).value());
  }
  for (bool pinned_first : {false, true}) {
    for (int64_t n = 0; n < kTensors; ++n) {
      const int64_t i = pinned_first ? kTensors - 1 - n : n;
      const absl::Status status =
          i % 2 == 0 ? stream_->UploadPinned(sent[i], device[i])
                     : stream_->Upload({&sent[i], 1}, device[i]);
      ASSERT_TRUE(status.ok()) << status;
    }
    std::vector<std::vector<std::byte>> got(kTensors);
    for (int64_t i = 0; i < kTensors; ++i) {
      got[i].resize(sent[i].size());
      ASSERT_TRUE(stream_->Download(device[i], HostSpan(got[i])).ok());
    }
    ASSERT_TRUE(stream_->Wait().ok());
    for (int64_t i = 0; i < kTensors; ++i) {
      ASSERT_TRUE(Same(got[i], sent[i])) << i;
    }
  }
}

TEST_F(PinningTest, PinnedUploadsAreTimedAsUpload) {
  std::byte* device = stream_->Allocate(kBytes).value();
  ASSERT_TRUE(stream_->UploadPinned(pages_->all(), device).ok());
  const PhaseTimes times = stream_->Wait().value();
  EXPECT_GT(times.upload, absl::ZeroDuration());
  EXPECT_EQ(times.download, absl::ZeroDuration());
}

TEST_F(PinningTest, AnEmptyCopyIsNoError) {
  std::byte* device = stream_->Allocate(1).value();
  EXPECT_TRUE(stream_->UploadPinned({}, device).ok());
  EXPECT_TRUE(stream_->Download(device, {}).ok());
  EXPECT_TRUE(stream_->Wait().ok());
}

TEST_F(PinningTest, WhatIsPinnedAlreadyIsAMistake) {
  const HostSpan piece = pages_->pieces().front();
  EXPECT_EQ(PinMemory(device_, piece).code(), absl::StatusCode::kInternal);
  // No call after it is any the worse for it.
  std::byte* device = stream_->Allocate(1000).value();
  EXPECT_TRUE(stream_->UploadPinned(piece.subspan(0, 1000), device).ok());
  EXPECT_TRUE(stream_->Wait().ok());
}

TEST_F(PinningTest, MayBePinnedAgainOnceUnpinned) {
  const HostSpan piece = pages_->pieces().back();
  for (int n = 0; n < 3; ++n) {
    UnpinMemory(device_, piece);
    ASSERT_TRUE(PinMemory(device_, piece).ok());
  }
}

}  // namespace
}  // namespace attnd::cuda
