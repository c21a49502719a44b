#include "server/work/device_name.h"

#include "gtest/gtest.h"

namespace attnd::server {
namespace {

TEST(DeviceName, HasKindIndexAndName) {
  DeviceInfo device;
  device.kind = "cuda";
  device.index = 2;
  device.name = "NVIDIA H200";
  EXPECT_EQ(DeviceLabel(device), "cuda:2");
  EXPECT_EQ(DeviceString(device), "cuda:2 NVIDIA H200");
}

}  // namespace
}  // namespace attnd::server
