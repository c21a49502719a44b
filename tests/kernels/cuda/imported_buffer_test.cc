// Memory of other processes, as fake_driver.h has it.

#include "kernels/cuda/device/imported_buffer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device/status.h"
#include "tests/kernels/cuda/fake_driver.h"
#include "tests/kernels/cuda/fake_runtime.h"

namespace attnd::cuda {
namespace {

using testing::FakeDriver;
using ::testing::HasSubstr;
using testing::kFakeGranularity;

constexpr int64_t kSize = 3 * kFakeGranularity;

class ImportedBufferTest : public ::testing::Test {
 protected:
  void SetUp() override {
    landing_ = Landing::Create(0).value();
    stream_ = CudaStream::Create(0, Gpu()).value();
  }
  void TearDown() override {
    testing::FailFakeDriver("", CUDA_SUCCESS);
    testing::LetFakeDriverMapParts(false);
    testing::RepairFakeDevice();
    ExpectNothingHeld();
  }

  static void ExpectNothingHeld() {
    EXPECT_EQ(FakeDriver().handles, 0);
    EXPECT_EQ(FakeDriver().reservations, 0);
    EXPECT_EQ(FakeDriver().mappings, 0);
  }
  absl::StatusOr<std::shared_ptr<ImportedBuffer>> Import(int fd,
                                                         int64_t bytes) {
    return ImportedBuffer::Create(landing_, fd, bytes);
  }
  // The answer to a descriptor of memory of `size` bytes and these properties.
  absl::Status Try(int64_t bytes, int64_t size,
                   const CUmemAllocationProp& properties) {
    const Descriptor exported = testing::ExportFakeMemory(size, properties);
    return Import(exported.get(), bytes).status();
  }
  std::shared_ptr<ImportedBuffer> ImportPlain() {
    const Descriptor exported =
        testing::ExportFakeMemory(kSize, testing::PlainFakeMemory(0));
    return Import(exported.get(), kSize).value();
  }

  std::shared_ptr<Landing> landing_;
  std::unique_ptr<CudaStream> stream_;
};

TEST_F(ImportedBufferTest, IsMappedAndNothingElseIsHeld) {
  const auto buffer = ImportPlain();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kTensorAlignment, 0);
  EXPECT_EQ(FakeDriver().handles, 0);
  EXPECT_EQ(FakeDriver().reservations, 1);
  EXPECT_EQ(FakeDriver().mappings, 1);
}

TEST_F(ImportedBufferTest, IsNotForTheHostToWrite) {
  const auto buffer = ImportPlain();
  EXPECT_EQ(buffer->Write(0, {}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ImportedBufferTest, IsReadInPlace) {
  auto buffer = ImportPlain();
  std::byte* data = buffer->data();
  std::memset(data, 0x17, kSize);  // as its own process would
  ASSERT_TRUE(stream_->Use(buffer).ok());
  std::vector<std::byte> got(kSize);
  ASSERT_TRUE(stream_->Download(data, HostSpan(got)).ok());
  ASSERT_TRUE(stream_->Wait().ok());
  stream_->Reset();
  EXPECT_EQ(std::memcmp(got.data(), data, kSize), 0);
}

// Although it was dropped, and the stream was reset, before the stream came to
// read it.
TEST_F(ImportedBufferTest, IsUnmappedOnlyAfterWhatStreamsDoWithIt) {
  const auto other = CudaStream::Create(0, Gpu()).value();
  std::vector<std::byte> got(kSize), also(kSize);
  {
    auto buffer = ImportPlain();
    std::byte* data = buffer->data();
    std::memset(data, 0x17, kSize);
    ASSERT_TRUE(stream_->Use(buffer).ok());
    ASSERT_TRUE(other->Use(std::move(buffer)).ok());
    ASSERT_TRUE(stream_->Download(data, HostSpan(got)).ok());
    ASSERT_TRUE(other->Download(data, HostSpan(also)).ok());
  }
  EXPECT_EQ(FakeDriver().mappings, 1);
  stream_->Reset();
  EXPECT_EQ(FakeDriver().mappings, 1);
  other->Reset();
  ExpectNothingHeld();
  EXPECT_EQ(got, std::vector<std::byte>(kSize, std::byte{0x17}));
  EXPECT_EQ(also, got);
}

TEST_F(ImportedBufferTest, GoesWithABrokenDevice) {
  auto buffer = ImportPlain();
  ASSERT_TRUE(stream_->Use(std::move(buffer)).ok());
  ASSERT_TRUE(stream_->Wait().ok());
  std::byte* device = stream_->Allocate(1).value();
  ASSERT_TRUE(stream_->Download(device, {}).ok());
  const absl::Status fault = [&] {
    testing::BreakFakeDevice(landing_->copies(), cudaErrorIllegalAddress);
    return ToStatus(cudaStreamSynchronize(landing_->copies()), "the device");
  }();
  EXPECT_EQ(fault.code(), absl::StatusCode::kInternal);
  stream_->Reset();
  ExpectNothingHeld();
}

TEST_F(ImportedBufferTest, ADescriptorOfAnythingElseIsInvalid) {
  int pair[2], ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  ASSERT_EQ(pipe(ends), 0);
  const Descriptor socket(pair[0]), peer(pair[1]), in(ends[0]), out(ends[1]);
  const Descriptor memory(memfd_create("no GPU", MFD_CLOEXEC));
  const Descriptor file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const Descriptor folder(open("/", O_RDONLY | O_CLOEXEC));
  const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int fd : {socket.get(), in.get(), memory.get(), file.get(), folder.get(),
                 null.get(), -1, 1'000'000}) {
    const absl::Status status = Import(fd, kSize).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fd;
    EXPECT_THAT(std::string(status.message()), HasSubstr("descriptor")) << fd;
    ExpectNothingHeld();
  }
}

TEST_F(ImportedBufferTest, AnotherSizeIsInvalid) {
  for (bool parts : {false, true}) {
    testing::LetFakeDriverMapParts(parts);
    for (int64_t bytes :
         {int64_t{0}, int64_t{-1}, -kFakeGranularity, int64_t{1},
          kFakeGranularity, kSize - kFakeGranularity, kSize - 1, kSize + 1,
          kSize + kFakeGranularity, 2 * kSize, int64_t{1} << 39,
          std::numeric_limits<int64_t>::max(),
          std::numeric_limits<int64_t>::max() / kFakeGranularity *
              kFakeGranularity,
          std::numeric_limits<int64_t>::min()}) {
      const absl::Status status =
          Try(bytes, kSize, testing::PlainFakeMemory(0));
      EXPECT_FALSE(status.ok()) << bytes;
      // Of what is beyond all addresses the driver says that there are none.
      EXPECT_EQ(status.code(), bytes > testing::kFakeAddresses && bytes % 2 == 0
                                   ? absl::StatusCode::kResourceExhausted
                                   : absl::StatusCode::kInvalidArgument)
          << bytes << " " << status;
      ExpectNothingHeld();
    }
    EXPECT_TRUE(Try(kSize, kSize, testing::PlainFakeMemory(0)).ok());
  }
}

TEST_F(ImportedBufferTest, AnotherDevicesIsInvalid) {
  const absl::Status status = Try(kSize, kSize, testing::PlainFakeMemory(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("GPU 1"));
}

TEST_F(ImportedBufferTest, AnotherKindIsInvalid) {
  CUmemAllocationProp host = testing::PlainFakeMemory(0);
  host.location.type = CU_MEM_LOCATION_TYPE_HOST;
  CUmemAllocationProp pool = testing::PlainFakeMemory(0);
  pool.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
  CUmemAllocationProp none = testing::PlainFakeMemory(0);
  none.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  for (const auto& properties : {host, pool, none}) {
    EXPECT_EQ(Try(kSize, kSize, properties).code(),
              absl::StatusCode::kInvalidArgument);
    ExpectNothingHeld();
  }
}

TEST_F(ImportedBufferTest, WhateverFailsNothingIsHeldAndTheDeviceIsWell) {
  struct Step {
    const char* name;
    int calls;  // that succeed before
  };
  // Of two calls the first finds out whether there is more than was said.
  for (const Step& step : {Step{"cuMemImportFromShareableHandle", 0},
                           Step{"cuMemGetAllocationPropertiesFromHandle", 0},
                           Step{"cuMemGetAllocationGranularity", 0},
                           Step{"cuMemAddressReserve", 1}, Step{"cuMemMap", 1},
                           Step{"cuMemSetAccess", 0}}) {
    for (const auto& [error, code] :
         {std::pair{CUDA_ERROR_UNKNOWN, absl::StatusCode::kInvalidArgument},
          std::pair{CUDA_ERROR_NOT_SUPPORTED,
                    absl::StatusCode::kInvalidArgument},
          std::pair{CUDA_ERROR_OUT_OF_MEMORY,
                    absl::StatusCode::kResourceExhausted}}) {
      testing::FailFakeDriver(step.name, error, step.calls);
      EXPECT_EQ(Try(kSize, kSize, testing::PlainFakeMemory(0)).code(), code)
          << step.name;
      ExpectNothingHeld();
    }
  }
  testing::FailFakeDriver("", CUDA_SUCCESS);
  EXPECT_TRUE(Try(kSize, kSize, testing::PlainFakeMemory(0)).ok());
}

}  // namespace
}  // namespace attnd::cuda
