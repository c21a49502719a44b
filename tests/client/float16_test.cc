#include "base/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace attnd::client {
namespace {

// The value that `bits` stand for, from the definition of such formats.
double Definition(uint16_t bits, int exponent_bits, int fraction_bits) {
  const double sign = bits >> 15 != 0 ? -1 : 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::nan("");
  }
  if (exponent == 0) {
    return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  }
  return sign * std::ldexp(fraction + (1 << fraction_bits),
                           exponent - bias - fraction_bits);
}

struct Format {
  int exponent_bits, fraction_bits;
  float (*from)(uint16_t);
  uint16_t (*to)(double);
};

class Float16Test : public ::testing::TestWithParam<Format> {};

TEST_P(Float16Test, EveryValueIsAsDefinedAndComesBack) {
  const Format format = GetParam();
  for (int i = 0; i < 1 << 16; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    const double expected =
        Definition(bits, format.exponent_bits, format.fraction_bits);
    const float value = format.from(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(format.from(format.to(value)))) << bits;
      continue;
    }
    ASSERT_EQ(value, expected) << bits;
    ASSERT_EQ(std::signbit(value), std::signbit(expected)) << bits;
    ASSERT_EQ(format.to(value), bits);
  }
}

// Between two neighbours: to the nearer, at the middle to the even one.
TEST_P(Float16Test, RoundsToNearestEven) {
  const Format format = GetParam();
  const int largest = ((1 << format.exponent_bits) - 1)
                      << format.fraction_bits;  // infinity
  for (int i = 0; i + 1 < largest; ++i) {
    const uint16_t low = static_cast<uint16_t>(i);
    const uint16_t high = static_cast<uint16_t>(i + 1);
    const double middle =
        (double{format.from(low)} + double{format.from(high)}) / 2;
    const double infinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(format.to(middle), i % 2 == 0 ? low : high) << i;
    EXPECT_EQ(format.to(std::nextafter(middle, -infinity)), low) << i;
    EXPECT_EQ(format.to(std::nextafter(middle, infinity)), high) << i;
    const float f32 = static_cast<float>(middle);
    EXPECT_EQ(format.to(std::nextafter(f32, -HUGE_VALF)), low) << i;
    EXPECT_EQ(format.to(std::nextafter(f32, HUGE_VALF)), high) << i;
    EXPECT_EQ(format.to(-middle) & 0x7fff, format.to(middle)) << i;
  }
}

TEST_P(Float16Test, TooLargeBecomesInfinite) {
  const Format format = GetParam();
  const uint16_t infinity = static_cast<uint16_t>(
      ((1 << format.exponent_bits) - 1) << format.fraction_bits);
  EXPECT_EQ(format.to(std::numeric_limits<float>::max()), infinity);
  EXPECT_EQ(format.to(-std::numeric_limits<float>::max()), infinity | 0x8000);
  // Halfway from the largest value to what would follow it.
  const double last = format.from(infinity - 1);
  const double step = last - format.from(infinity - 2);
  EXPECT_EQ(format.to(static_cast<float>(last + step / 2)), infinity);
  EXPECT_EQ(format.to(std::nextafter(static_cast<float>(last + step / 2), 0.f)),
            infinity - 1);
}

INSTANTIATE_TEST_SUITE_P(F16, Float16Test,
                         ::testing::Values(Format{5, 10, FromF16, ToF16}));
INSTANTIATE_TEST_SUITE_P(Bf16, Float16Test,
                         ::testing::Values(Format{8, 7, FromBf16, ToBf16}));

}  // namespace
}  // namespace attnd::client
