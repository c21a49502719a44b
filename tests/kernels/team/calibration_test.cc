#include "kernels/team/calibration.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/team/team_fixture.h"

namespace attnd {
namespace {

using testing::Cpus;

// Devices that share the host's memory are what they say: how fast they are
// would depend on what else the machine does.
TEST(CalibrationTest, MeasuresNothingOnProcessors) {
  const auto devices = Cpus(2);
  const DeviceRates expected = devices.front()->Rates();
  const DeviceRates rates = Calibrate({devices[0].get(), devices[1].get()});
  EXPECT_EQ(rates.forward.flops, expected.forward.flops);
  EXPECT_EQ(rates.backward.flops, expected.backward.flops);
  EXPECT_EQ(rates.upload.bytes, expected.upload.bytes);
  EXPECT_EQ(rates.pull.bytes, expected.pull.bytes);
}

}  // namespace
}  // namespace attnd
