// Copies from and to memory that was pinned piece by piece. Runs on a GPU, and
// everywhere against fake_runtime.h, which refuses what reaches from one piece
// into the next.

#include "kernels/cuda/device/pinning.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/descriptor.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device/gpu.h"

namespace attnd::cuda {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kPiece = kPinnedPieceBytes;

// Whole pages of a memfd, mapped where a piece begins.
class SharedPages {
 public:
  explicit SharedPages(int64_t bytes)
      : bytes_(bytes), memory_(memfd_create("pages", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(memory_.get(), bytes), 0);
    reserved_ = mmap(nullptr, bytes + kPiece, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(reserved_, MAP_FAILED);
    const auto at = reinterpret_cast<uintptr_t>(reserved_);
    void* first = reinterpret_cast<void*>((at + kPiece - 1) / kPiece * kPiece);
    data_ = static_cast<std::byte*>(mmap(first, bytes, PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                                         memory_.get(), 0));
    EXPECT_EQ(data_, first);
  }
  ~SharedPages() { munmap(reserved_, bytes_ + kPiece); }

  HostSpan all() const { return {data_, static_cast<size_t>(bytes_)}; }
  // By pieces, the last of which is smaller.
  std::vector<HostSpan> pieces() const {
    std::vector<HostSpan> pieces;
    for (int64_t at = 0; at < bytes_; at += kPiece) {
      pieces.push_back(all().subspan(at, kPiece));
    }
    return pieces;
  }

 private:
  const int64_t bytes_;
  const Descriptor memory_;
  void* reserved_ = nullptr;
  std::byte* data_ = nullptr;
};

void FillRandomly(uint32_t seed, HostSpan bytes) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    const uint64_t bits = random();
    std::memcpy(bytes.data() + at, &bits, 8);
  }
}

bool Same(ConstHostSpan a, ConstHostSpan b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

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
