#include "kernels/dtype.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "gtest/gtest.h"

namespace attnd {
namespace {

// tests/base/float16_test.cc has the conversions themselves.
struct Format {
  DType dtype;
  float (*widen)(uint16_t);
  uint16_t (*round)(double);
};
constexpr Format kFormats[] = {
    {DType::kF16, F16ToFloat, DoubleToF16},
    {DType::kBF16, BF16ToFloat, DoubleToBF16},
};

TEST(DTypeTest, LoadsAndStoresEveryValueOf16Bits) {
  for (const Format& f : kFormats) {
    for (int i = 0; i <= 0xffff; ++i) {
      // Beside others, which stay.
      uint16_t array[] = {0x1234, static_cast<uint16_t>(i), 0x4321};
      const float value = LoadElement(array, f.dtype, 1);
      ASSERT_EQ(std::bit_cast<uint32_t>(value),
                std::bit_cast<uint32_t>(f.widen(array[1])));
      array[1] = 0x5555;
      StoreElement(array, f.dtype, 1, value);
      ASSERT_EQ(array[0], 0x1234);
      ASSERT_EQ(array[1], f.round(value));
      ASSERT_EQ(array[2], 0x4321);
      if (!std::isnan(value)) {
        ASSERT_EQ(array[1], i);
        ASSERT_EQ(RoundTo(f.dtype, value), value);
      }
    }
  }
}

TEST(DTypeTest, LoadsAndStoresF32) {
  float array[] = {1, 2, 3};
  EXPECT_EQ(LoadElement(array, DType::kF32, 2), 3);
  StoreElement(array, DType::kF32, 1, 1 + 0x1p-24 + 0x1p-50);
  EXPECT_EQ(array[1], 1 + 0x1p-23f);
  EXPECT_EQ(array[0], 1);
  EXPECT_EQ(array[2], 3);
}

TEST(DTypeTest, RoundsDoublesOnce) {
  // To float first, these would land on a midpoint and be rounded the wrong
  // way.
  EXPECT_EQ(RoundTo(DType::kF16, 1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10);
  EXPECT_EQ(RoundTo(DType::kBF16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
  EXPECT_EQ(RoundTo(DType::kF32, 1 + 0x1p-24 + 0x1p-50), 1 + 0x1p-23);
  EXPECT_EQ(RoundTo(DType::kF16, 1e300), INFINITY);
  EXPECT_EQ(RoundTo(DType::kBF16, -1e300), -INFINITY);
  uint16_t bits = 1;
  StoreElement(&bits, DType::kF16, 0, -1e-300);
  EXPECT_EQ(bits, 0x8000);
}

}  // namespace
}  // namespace attnd
