#include "client/element.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace attnd::client {
namespace {

TEST(ElementTest, ComesBackAtAnyAddress) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    char data[16] = {};
    for (const float value : {1.5f, -0.0f, 7.875f, HUGE_VALF}) {
      StoreElement(dtype, value, data + 1, 2);
      const float read = LoadElement(dtype, data + 1, 2);
      EXPECT_EQ(std::bit_cast<uint32_t>(read), std::bit_cast<uint32_t>(value));
    }
  }
}

TEST(ElementTest, ANanInF16HasItsSignAlone) {
  const double nan = std::bit_cast<double>(0x7ff8'1234'5678'9abc);
  EXPECT_EQ(ToF16(nan), 0x7e00);
  EXPECT_EQ(ToF16(-nan), 0xfe00);
  EXPECT_EQ(ToF16(std::bit_cast<float>(0x7fc0'2000)), 0x7e00);
  EXPECT_EQ(ToF16(1.5), DoubleToF16(1.5));
}

}  // namespace
}  // namespace attnd::client
