// What a stream does beside arithmetic. Runs on a GPU, and everywhere against
// fake_runtime.h.

#include "kernels/cuda/cuda_stream.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/pinned_memory.h"

namespace attnd::cuda {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

using Bytes = std::vector<std::byte>;

Bytes RandomBytes(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = std::byte(random());
  return bytes;
}

// Pinned memory, freed when it goes.
class Pinned {
 public:
  Pinned(PinnedMemory& memory, int64_t bytes)
      : memory_(memory),
        bytes_(bytes),
        data_(memory.Allocate(std::max<int64_t>(bytes, 1))) {}
  ~Pinned() { memory_.Free(data_, std::max<int64_t>(bytes_, 1)); }
  HostSpan span() const { return {data_, static_cast<size_t>(bytes_)}; }

 private:
  PinnedMemory& memory_;
  const int64_t bytes_;
  std::byte* const data_;
};

// The whole in spans of up to `most` bytes, some of them empty.
std::vector<ConstHostSpan> Spans(const Bytes& whole, size_t most,
                                 uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<ConstHostSpan> spans;
  for (size_t at = 0; at < whole.size();) {
    const size_t bytes = std::min(whole.size() - at, random() % (most + 1));
    spans.push_back(ConstHostSpan(whole).subspan(at, bytes));
    at += bytes;
  }
  return spans;
}

class CudaStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto usable = UsableDevices();
    if (!usable.ok()) GTEST_SKIP() << "no GPU here: " << usable.status();
    if (usable->empty()) GTEST_SKIP() << "no GPU that is recent enough here";
    device_ = usable->front();
    pinned_ = std::make_unique<PinnedMemory>(device_, 64 * kMiB);
    stream_ = NewStream();
  }

  std::unique_ptr<CudaStream> NewStream() {
    auto stream = CudaStream::Create(device_, DescribeGpu(device_).value());
    EXPECT_TRUE(stream.ok()) << stream.status();
    return *std::move(stream);
  }

  // What comes back of what goes up, as `spans`, in calls of up to `at_once`.
  Bytes RoundTrip(CudaStream& stream, const std::vector<ConstHostSpan>& spans,
                  int64_t bytes, size_t at_once) {
    std::byte* device = stream.Allocate(bytes).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(device) % kTensorAlignment, 0);
    std::byte* to = device;
    for (size_t i = 0; i < spans.size(); i += at_once) {
      const auto piece = absl::MakeConstSpan(spans).subspan(i, at_once);
      EXPECT_TRUE(stream.Upload(piece, to).ok());
      for (ConstHostSpan span : piece) to += span.size();
    }
    Pinned host(*pinned_, bytes);
    EXPECT_TRUE(stream.Download(device, host.span()).ok());
    EXPECT_TRUE(stream.Wait().ok());
    stream.Reset();
    return Bytes(host.span().begin(), host.span().end());
  }

  int device_ = 0;
  std::unique_ptr<PinnedMemory> pinned_;
  std::unique_ptr<CudaStream> stream_;
};

TEST_F(CudaStreamTest, RoundTripsEverySize) {
  for (int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{256},
                        int64_t{257}, int64_t{4097}, kMiB / 4, kMiB - 1, kMiB,
                        kMiB + 1, 4 * kMiB + 3, 8 * kMiB, 21 * kMiB + 5}) {
    const Bytes whole = RandomBytes(bytes, 1);
    EXPECT_TRUE(RoundTrip(*stream_, {whole}, bytes, 1) == whole) << bytes;
  }
}

TEST_F(CudaStreamTest, RoundTripsEverySplit) {
  const Bytes whole = RandomBytes(10 * kMiB + 7, 2);
  for (size_t most : {size_t{5000}, size_t{100'000}, size_t{5 * kMiB}}) {
    for (size_t at_once : {1, 3, 1000}) {
      const auto spans = Spans(whole, most, static_cast<uint32_t>(most));
      EXPECT_TRUE(RoundTrip(*stream_, spans, whole.size(), at_once) == whole)
          << most << " " << at_once;
    }
  }
}

TEST_F(CudaStreamTest, HostSpansMayGoOnceUploadReturns) {
  const Bytes whole = RandomBytes(20 * kMiB, 3);
  std::byte* device = stream_->Allocate(whole.size()).value();
  Bytes piece;
  for (size_t at = 0; at < whole.size(); at += piece.size()) {
    const size_t bytes = std::min<size_t>(300'001, whole.size() - at);
    piece.assign(whole.begin() + at, whole.begin() + at + bytes);
    const ConstHostSpan span(piece);
    ASSERT_TRUE(stream_->Upload({&span, 1}, device + at).ok());
    std::fill(piece.begin(), piece.end(), std::byte{0xEE});
  }
  Pinned host(*pinned_, whole.size());
  ASSERT_TRUE(stream_->Download(device, host.span()).ok());
  ASSERT_TRUE(stream_->Wait().ok());
  EXPECT_EQ(std::memcmp(host.span().data(), whole.data(), whole.size()), 0);
}

TEST_F(CudaStreamTest, ManyTinyTensorsKeepApart) {
  for (int batch = 0; batch < 3; ++batch) {
    const int64_t tensors = 3000;
    std::vector<Bytes> sent;
    std::vector<std::byte*> device;
    std::vector<std::unique_ptr<Pinned>> host;
    for (int64_t i = 0; i < tensors; ++i) {
      sent.push_back(RandomBytes(i % 777, i));
      device.push_back(stream_->Allocate(sent.back().size()).value());
      const ConstHostSpan span(sent.back());
      ASSERT_TRUE(stream_->Upload({&span, 1}, device.back()).ok());
    }
    for (int64_t i = 0; i < tensors; ++i) {
      host.push_back(std::make_unique<Pinned>(*pinned_, sent[i].size()));
      ASSERT_TRUE(stream_->Download(device[i], host.back()->span()).ok());
    }
    ASSERT_TRUE(stream_->Wait().ok());
    for (int64_t i = 0; i < tensors; ++i) {
      const HostSpan got = host[i]->span();
      ASSERT_TRUE(
          std::equal(got.begin(), got.end(), sent[i].begin(), sent[i].end()))
          << i;
    }
    stream_->Reset();
  }
}

// Backwards, and with holes that begin and end anywhere.
TEST_F(CudaStreamTest, UploadsLeaveAllButPaddingAsItWas) {
  constexpr int64_t kBytes = 100'000;
  Bytes expected(kBytes, std::byte{0x11});
  std::byte* device = stream_->Allocate(kBytes).value();
  const ConstHostSpan background(expected);
  ASSERT_TRUE(stream_->Upload({&background, 1}, device).ok());
  for (int64_t at : {90'000, 50'000, 50'100, 50'110, 256, 60'001, 0}) {
    const Bytes piece = RandomBytes(10, at);
    const ConstHostSpan span(piece);
    ASSERT_TRUE(stream_->Upload({&span, 1}, device + at).ok());
    std::copy(piece.begin(), piece.end(), expected.begin() + at);
  }
  Pinned host(*pinned_, kBytes);
  ASSERT_TRUE(stream_->Download(device, host.span()).ok());
  ASSERT_TRUE(stream_->Wait().ok());
  EXPECT_EQ(std::memcmp(host.span().data(), expected.data(), kBytes), 0);
}

TEST_F(CudaStreamTest, OutputsHaveMemoryEvenWhenEmpty) {
  const auto empty = stream_->MapOutput({});
  ASSERT_TRUE(empty.ok());
  EXPECT_NE(*empty, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*empty) % kTensorAlignment, 0);
  EXPECT_TRUE(stream_->Download(*empty, {}).ok());
  EXPECT_TRUE(stream_->Upload({}, *empty).ok());
  EXPECT_TRUE(stream_->Wait().ok());
  stream_->Reset();
  stream_->Reset();
}

TEST_F(CudaStreamTest, NoMemoryIsResourceExhaustedAndTheStreamGoesOn) {
  const Bytes whole = RandomBytes(100'000, 4);
  for (int64_t bytes : {int64_t{1} << 40, int64_t{1} << 45, int64_t{1} << 62}) {
    EXPECT_EQ(stream_->Allocate(bytes).status().code(),
              absl::StatusCode::kResourceExhausted);
    std::byte here{};
    EXPECT_EQ(stream_->MapOutput(HostSpan(&here, bytes)).status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(RoundTrip(*stream_, {whole}, whole.size(), 1) == whole);
  }
}

TEST_F(CudaStreamTest, TimesArePhases) {
  const absl::Time start = absl::Now();
  const Bytes whole = RandomBytes(32 * kMiB, 5);
  const ConstHostSpan span(whole);
  std::byte* device = stream_->Allocate(whole.size()).value();
  Pinned host(*pinned_, whole.size());
  ASSERT_TRUE(stream_->Upload({&span, 1}, device).ok());
  ASSERT_TRUE(stream_->Download(device, host.span()).ok());
  const PhaseTimes times = stream_->Wait().value();
  EXPECT_GT(times.upload, absl::ZeroDuration());
  EXPECT_GT(times.download, absl::ZeroDuration());
  EXPECT_EQ(times.compute, absl::ZeroDuration());
  EXPECT_LE(times.upload + times.download, absl::Now() - start);
  // And begin anew.
  const PhaseTimes none = stream_->Wait().value();
  EXPECT_EQ(none.upload, absl::ZeroDuration());
  EXPECT_EQ(none.download, absl::ZeroDuration());
}

TEST_F(CudaStreamTest, PhasesMayTakeTurns) {
  const Bytes whole = RandomBytes(kMiB, 6);
  const ConstHostSpan span(whole);
  std::byte* device = stream_->Allocate(whole.size()).value();
  Pinned host(*pinned_, whole.size());
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(stream_->Upload({&span, 1}, device).ok());
    ASSERT_TRUE(stream_->Download(device, host.span()).ok());
  }
  const PhaseTimes times = stream_->Wait().value();
  EXPECT_GT(times.upload, absl::ZeroDuration());
  EXPECT_GT(times.download, absl::ZeroDuration());
}

TEST_F(CudaStreamTest, EveryCallMayComeFromAnotherThread) {
  const Bytes whole = RandomBytes(3 * kMiB, 7);
  for (int i = 0; i < 5; ++i) {
    std::thread([&] {
      EXPECT_TRUE(RoundTrip(*stream_, {whole}, whole.size(), 1) == whole);
    }).join();
  }
}

TEST_F(CudaStreamTest, SeveralStreamsWorkAtOnce) {
  std::vector<std::thread> lanes;
  for (uint32_t lane = 0; lane < 4; ++lane) {
    lanes.emplace_back([this, lane] {
      const std::unique_ptr<CudaStream> stream = NewStream();
      for (uint32_t i = 0; i < 8; ++i) {
        const Bytes whole = RandomBytes(1 + i * i * 100'003, 8 * lane + i);
        const auto spans = Spans(whole, 200'000, i);
        ASSERT_TRUE(RoundTrip(*stream, spans, whole.size(), 2) == whole);
      }
    });
  }
  for (std::thread& lane : lanes) lane.join();
}

TEST_F(CudaStreamTest, MayGoWithWorkUnderWay) {
  const Bytes whole = RandomBytes(12 * kMiB, 9);
  const ConstHostSpan span(whole);
  Pinned host(*pinned_, whole.size());
  std::byte* device = stream_->Allocate(whole.size()).value();
  ASSERT_TRUE(stream_->Upload({&span, 1}, device).ok());
  ASSERT_TRUE(stream_->Download(device, host.span()).ok());
  stream_ = nullptr;
  // Once it is gone, so is what it had to do.
  EXPECT_EQ(std::memcmp(host.span().data(), whole.data(), whole.size()), 0);
}

TEST_F(CudaStreamTest, AGroupOfNothingIsNoError) {
  EXPECT_TRUE(stream_->Forward({}, {}).ok());
  EXPECT_TRUE(stream_->Backward({}, {}).ok());
  EXPECT_TRUE(stream_->Wait().ok());
}

TEST_F(CudaStreamTest, FreedPinnedMemoryIsUsedAgainWithinABound) {
  PinnedMemory memory(device_, 3 * kMiB);
  std::byte* a = memory.Allocate(kMiB);
  std::byte* b = memory.Allocate(2 * kMiB);
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % kTensorAlignment, 0);
  std::memset(b, 1, 2 * kMiB);
  memory.Free(a, kMiB);
  memory.Free(b, 2 * kMiB);
  EXPECT_EQ(memory.idle_bytes(), 3 * kMiB);
  EXPECT_EQ(memory.Allocate(2 * kMiB), b);
  EXPECT_EQ(memory.Allocate(kMiB), a);
  EXPECT_EQ(memory.idle_bytes(), 0);
  std::byte* large = memory.Allocate(4 * kMiB);
  memory.Free(a, kMiB);
  memory.Free(large, 4 * kMiB);  // more than it keeps, and the oldest first
  EXPECT_EQ(memory.idle_bytes(), 0);
  memory.Free(b, 2 * kMiB);
  EXPECT_EQ(memory.idle_bytes(), 2 * kMiB);
  EXPECT_EQ(memory.Allocate(int64_t{1} << 50), nullptr);
}

}  // namespace
}  // namespace attnd::cuda
