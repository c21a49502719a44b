#include "attnd/device_region.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "attnd/region.h"
#include "proto/wire/status.h"
#include "tests/client/region_server.h"
#include "tests/hang_limit.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;

constexpr int64_t kBytes = 1 << 20;
constexpr absl::Duration kLong = testing::kHangLimit;

class DeviceRegionTest : public ::testing::Test {
 protected:
  DeviceRegionTest() {
    exported_.fd = memory_.get();
    exported_.data = &exported_;  // nobody looks there
    exported_.bytes = kBytes;
    exported_.gpu_uuid.fill(7);
  }

  const Descriptor memory_ = MemoryOf(kBytes);
  ExportedMemory exported_;
};

TEST_F(DeviceRegionTest, LendsWhatTheCallerHasExported) {
  const size_t before = OpenDescriptors();
  {
    RegionServer server([](int socket, const Packet& packet) {
      v1::RegionRequest request;
      EXPECT_TRUE(request.ParseFromString(packet.bytes));
      EXPECT_EQ(request.import().bytes(), kBytes);
      EXPECT_EQ(request.import().gpu_uuid(), std::string(16, 7));
      struct stat status = {};
      EXPECT_EQ(fstat(packet.descriptor.get(), &status), 0);
      EXPECT_EQ(status.st_size, kBytes);
      return SendPacket(socket, GoodReply(kBytes).SerializeAsString()).ok();
    });
    auto region = LendDeviceMemory(server.path(), exported_, kLong);
    ASSERT_TRUE(region.ok()) << region.status();
    EXPECT_TRUE((*region)->on_device());
    EXPECT_EQ((*region)->data(), exported_.data);
    EXPECT_EQ((*region)->bytes(), kBytes);
    EXPECT_EQ((*region)->id(), "sixteen secret b");
    EXPECT_TRUE((*region)->status().ok());
    const auto tensor = (*region)->Allocate(DType::kBF16, {3, 5});
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->data, exported_.data);
    region->reset();
    EXPECT_TRUE(server.LeaseEnds());
  }
  EXPECT_EQ(OpenDescriptors(), before) << "the caller's is the caller's";
}

TEST_F(DeviceRegionTest, WhatIsNoMemoryIsNotLent) {
  const auto refused = [&](const ExportedMemory& memory) {
    return absl::IsInvalidArgument(
        LendDeviceMemory("/nowhere", memory, kLong).status());
  };
  ExportedMemory bad = exported_;
  bad.fd = -1;
  EXPECT_TRUE(refused(bad));
  bad = exported_;
  bad.data = nullptr;
  EXPECT_TRUE(refused(bad));
  bad = exported_;
  bad.bytes = 0;
  EXPECT_TRUE(refused(bad));
  EXPECT_TRUE(absl::IsUnavailable(
      LendDeviceMemory("/nowhere/at/all", exported_, kLong).status()));
}

TEST_F(DeviceRegionTest, ARefusalIsTheServers) {
  RegionServer server([](int socket, const Packet&) {
    v1::RegionReply reply;
    reply.set_status(wire::EncodeStatus(absl::NotFoundError("no such GPU")));
    EXPECT_TRUE(SendPacket(socket, reply.SerializeAsString()).ok());
    return false;
  });
  EXPECT_EQ(LendDeviceMemory(server.path(), exported_, kLong).status(),
            absl::NotFoundError("no such GPU"));
}

TEST_F(DeviceRegionTest, AllOfItIsLentOrNone) {
  for (const int64_t bytes : {kBytes - 1, kBytes + 1}) {
    RegionServer server([&](int socket, const Packet&) {
      return SendPacket(socket, GoodReply(bytes).SerializeAsString()).ok();
    });
    const absl::Status status =
        LendDeviceMemory(server.path(), exported_, kLong).status();
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    ASSERT_EQ(wire::FieldViolations(status).size(), 1);
    EXPECT_EQ(wire::FieldViolations(status)[0].field, "bytes");
  }
}

TEST_F(DeviceRegionTest, ADescriptorThatNobodyAskedForIsClosed) {
  const size_t before = OpenDescriptors();
  {
    RegionServer server([&](int socket, const Packet&) {
      return SendPacket(socket, GoodReply(kBytes).SerializeAsString(),
                        memory_.get())
          .ok();
    });
    const size_t with_server = OpenDescriptors();
    const auto region = LendDeviceMemory(server.path(), exported_, kLong);
    ASSERT_TRUE(region.ok()) << region.status();
    // The two ends of the lease, and perhaps still what the server received.
    EXPECT_LE(OpenDescriptors(), with_server + 3);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(DeviceRegionTest, AllocatesOnlyWhereThereIsAGpu) {
  EXPECT_TRUE(absl::IsInvalidArgument(
      AllocateDeviceRegion("/nowhere", 0, 0, kLong).status()));
  if (void* library = dlopen("libcuda.so.1", RTLD_LAZY)) {
    dlclose(library);
    GTEST_SKIP() << "there is a CUDA driver";
  }
  const absl::Status status =
      AllocateDeviceRegion("/nowhere", kBytes, 0, kLong).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
}

}  // namespace
}  // namespace attnd::client
