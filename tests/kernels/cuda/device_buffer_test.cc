// Buffers of no stream. Runs on a GPU, and everywhere against fake_runtime.h.

#include "kernels/cuda/device/device_buffer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device/gpu.h"

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

class DeviceBufferTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto usable = UsableDevices();
    if (!usable.ok()) GTEST_SKIP() << "no GPU here: " << usable.status();
    if (usable->empty()) GTEST_SKIP() << "no GPU that is recent enough here";
    device_ = usable->front();
    landing_ = Landing::Create(device_).value();
    stream_ = NewStream();
  }

  std::unique_ptr<CudaStream> NewStream() {
    return CudaStream::Create(device_, DescribeGpu(device_).value()).value();
  }
  std::shared_ptr<CudaBuffer> NewBuffer(int64_t bytes) {
    return CudaBuffer::Create(landing_, bytes).value();
  }
  static absl::Status Write(DeviceBuffer& buffer, int64_t offset,
                            ConstHostSpan bytes) {
    return buffer.Write(offset, {&bytes, 1});
  }
  // What a stream that uses the buffer finds in it.
  static Bytes Read(CudaStream& stream, std::shared_ptr<DeviceBuffer> buffer,
                    int64_t bytes) {
    const std::byte* data = buffer->data();
    EXPECT_TRUE(stream.Use(std::move(buffer)).ok());
    Bytes host(bytes);
    EXPECT_TRUE(stream.Download(data, HostSpan(host)).ok());
    EXPECT_TRUE(stream.Wait().ok());
    stream.Reset();
    return host;
  }

  int device_ = 0;
  std::shared_ptr<Landing> landing_;
  std::unique_ptr<CudaStream> stream_;
};

TEST_F(DeviceBufferTest, HoldsWhatWasWritten) {
  for (int64_t bytes :
       {int64_t{1}, int64_t{1000}, kMiB - 1, kMiB, kMiB + 1, 20 * kMiB + 5}) {
    const auto buffer = NewBuffer(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kTensorAlignment,
              0);
    const Bytes written = RandomBytes(bytes, 1);
    ASSERT_TRUE(Write(*buffer, 0, written).ok());
    EXPECT_TRUE(Read(*stream_, buffer, bytes) == written) << bytes;
  }
}

TEST_F(DeviceBufferTest, MayBeEmpty) {
  const auto buffer = NewBuffer(0);
  EXPECT_NE(buffer->data(), nullptr);
  EXPECT_TRUE(buffer->Write(0, {}).ok());
  EXPECT_TRUE(stream_->Use(buffer).ok());
}

TEST_F(DeviceBufferTest, SpansAreJoinedWhateverTheirSizes) {
  const Bytes written = RandomBytes(5 * kMiB + 3, 2);
  std::mt19937 random(2);
  std::vector<ConstHostSpan> spans;
  for (size_t at = 0; at < written.size();) {
    const size_t bytes =
        std::min<size_t>(written.size() - at, random() % 300'000);
    spans.push_back(ConstHostSpan(written).subspan(at, bytes));
    at += bytes;
  }
  spans.push_back({});
  const auto buffer = NewBuffer(static_cast<int64_t>(written.size()) + 10);
  ASSERT_TRUE(buffer->Write(10, spans).ok());
  const Bytes got =
      Read(*stream_, buffer, static_cast<int64_t>(written.size()) + 10);
  EXPECT_EQ(std::memcmp(got.data() + 10, written.data(), written.size()), 0);
}

TEST_F(DeviceBufferTest, SpansMayGoOnceWriteReturns) {
  const Bytes written = RandomBytes(3 * kMiB, 3);
  const auto buffer = NewBuffer(3 * kMiB);
  {
    Bytes copy = written;
    ASSERT_TRUE(Write(*buffer, 0, copy).ok());
    std::fill(copy.begin(), copy.end(), std::byte{0xEE});
  }
  EXPECT_TRUE(Read(*stream_, buffer, 3 * kMiB) == written);
}

// More of them than there are blocks.
TEST_F(DeviceBufferTest, ManyThreadsWriteSideBySide) {
  constexpr int kThreads = 2 * Landing::kBlocks;
  constexpr int64_t kPart = 2 * kMiB + 77;
  const auto buffer = NewBuffer(kThreads * kPart);
  const Bytes written = RandomBytes(kThreads * kPart, 4);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t at = 0; at < kPart; at += 500'000) {
        const int64_t bytes = std::min<int64_t>(500'000, kPart - at);
        EXPECT_TRUE(Write(*buffer, t * kPart + at,
                          ConstHostSpan(written).subspan(t * kPart + at, bytes))
                        .ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(Read(*stream_, buffer, kThreads * kPart) == written);
}

TEST_F(DeviceBufferTest, StreamsThatUseItKeepIt) {
  const Bytes written = RandomBytes(2 * kMiB, 5);
  auto buffer = NewBuffer(2 * kMiB);
  ASSERT_TRUE(Write(*buffer, 0, written).ok());
  const std::weak_ptr<CudaBuffer> watched = buffer;
  const std::unique_ptr<CudaStream> other = NewStream();
  ASSERT_TRUE(other->Use(buffer).ok());
  EXPECT_TRUE(Read(*stream_, std::move(buffer), 2 * kMiB) == written);
  EXPECT_FALSE(watched.expired());
  other->Reset();
  EXPECT_TRUE(watched.expired());
}

// Although it was dropped before the stream came to read it, and its memory is
// wanted by the next ones.
TEST_F(DeviceBufferTest, IsFreedOnlyAfterWhatStreamsDoWithIt) {
  const Bytes written = RandomBytes(2 * kMiB, 6);
  Bytes host(2 * kMiB);
  {
    auto buffer = NewBuffer(2 * kMiB);
    ASSERT_TRUE(Write(*buffer, 0, written).ok());
    const std::byte* data = buffer->data();
    ASSERT_TRUE(stream_->Use(std::move(buffer)).ok());
    ASSERT_TRUE(stream_->Download(data, HostSpan(host)).ok());
    stream_->Reset();
  }
  for (int n = 0; n < 3; ++n) {
    const auto next = NewBuffer(2 * kMiB);
    ASSERT_TRUE(Write(*next, 0, RandomBytes(2 * kMiB, 7)).ok());
  }
  ASSERT_TRUE(stream_->Wait().ok());
  EXPECT_TRUE(host == written);
}

TEST_F(DeviceBufferTest, MayGoUnused) {
  for (int n = 0; n < 20; ++n) {
    const auto buffer = NewBuffer(kMiB);
    ASSERT_TRUE(Write(*buffer, 0, RandomBytes(kMiB, 8)).ok());
  }
}

TEST_F(DeviceBufferTest, MoreThanThereIsIsResourceExhausted) {
  for (int64_t bytes : {int64_t{1} << 40, int64_t{1} << 45, int64_t{1} << 62}) {
    EXPECT_EQ(CudaBuffer::Create(landing_, bytes).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
  EXPECT_TRUE(CudaBuffer::Create(landing_, 1000).ok());
}

}  // namespace
}  // namespace attnd::cuda
