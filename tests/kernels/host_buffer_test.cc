#include "kernels/host_buffer.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"

namespace attnd {
namespace {

TEST(HostBufferTest, SeveralThreadsFillIt) {
  constexpr size_t kBytes = 10'000, kPart = 1000;
  std::vector<std::byte> whole(kBytes);
  for (size_t i = 0; i < kBytes; ++i) whole[i] = std::byte(i % 251);
  auto backend = CreateCpuBackend({.threads = 1}).value();
  auto buffer = backend->NewBuffer(kBytes).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kTensorAlignment, 0);
  std::vector<std::thread> writers;
  for (size_t at = 0; at < kBytes; at += kPart) {
    writers.emplace_back([&, at] {
      const ConstHostSpan part = ConstHostSpan(whole).subspan(at, kPart);
      // Pieces of any size, one of them empty.
      const ConstHostSpan spans[] = {part.first(1), part.subspan(1, 0),
                                     part.subspan(1)};
      EXPECT_TRUE(buffer->Write(static_cast<int64_t>(at), spans).ok());
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(std::memcmp(buffer->data(), whole.data(), kBytes), 0);
}

TEST(HostBufferTest, OutlivesItsBackend) {
  auto backend = CreateCpuBackend({.threads = 1}).value();
  auto buffer = backend->NewBuffer(100).value();
  backend.reset();
  std::memset(buffer->data(), 1, 100);
}

TEST(HostBufferTest, MayBeEmpty) {
  auto backend = CreateCpuBackend({.threads = 1}).value();
  auto buffer = backend->NewBuffer(0).value();
  EXPECT_TRUE(buffer->Write(0, {}).ok());
}

TEST(HostBufferTest, NoMemoryIsResourceExhausted) {
  auto backend = CreateCpuBackend({.threads = 1}).value();
  EXPECT_EQ(backend->NewBuffer(int64_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(HostBufferTest, AStreamKeepsItUntilItIsReset) {
  auto backend = CreateCpuBackend({.threads = 1}).value();
  auto stream = backend->NewStream().value();
  auto buffer = backend->NewBuffer(100).value();
  const std::weak_ptr<DeviceBuffer> alive = buffer;
  ASSERT_TRUE(stream->Use(std::move(buffer)).ok());
  EXPECT_EQ(stream->Mark().value(), 0);
  EXPECT_EQ(stream->Mark().value(), 1);
  EXPECT_TRUE(stream->WaitFor(1).ok());
  EXPECT_TRUE(stream->Wait().ok());
  EXPECT_FALSE(alive.expired());
  stream->Reset();
  EXPECT_TRUE(alive.expired());
  EXPECT_EQ(stream->Mark().value(), 0);
}

}  // namespace
}  // namespace attnd
