// What is known of a GPU, here of fake_runtime.h's.

#include "kernels/cuda/device/gpu.h"

#include "gtest/gtest.h"

namespace attnd::cuda {
namespace {

TEST(Gpu, IsToldFromOthersByItsUuid) {
  const DeviceInfo device = OpenDevice(0, 0).value();
  EXPECT_EQ(device.uuid, "a fake GPU's id.");
}

TEST(Gpu, OfNoKnownPciDeviceIsNextToAnyNode) {
  const DeviceInfo device = OpenDevice(0, 0).value();
  EXPECT_EQ(device.numa_node, -1);
}

}  // namespace
}  // namespace attnd::cuda
