#include "base/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace attnd {
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
  float (*widen)(uint16_t);
  uint16_t (*from_float)(float);
  uint16_t (*from_double)(double);

  uint16_t infinity() const {
    return static_cast<uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
  }
};

class Float16Test : public ::testing::TestWithParam<Format> {};

TEST_P(Float16Test, EveryValueIsAsDefinedAndComesBack) {
  const Format format = GetParam();
  for (int i = 0; i < 1 << 16; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    const double expected =
        Definition(bits, format.exponent_bits, format.fraction_bits);
    if (std::isnan(expected)) continue;
    const float value = format.widen(bits);
    ASSERT_EQ(value, expected) << bits;
    ASSERT_EQ(std::signbit(value), std::signbit(expected)) << bits;
    ASSERT_EQ(format.from_float(value), bits);
    ASSERT_EQ(format.from_double(value), bits);
  }
}

// With its sign and its payload, and quiet.
TEST_P(Float16Test, EveryNanStaysItself) {
  const Format format = GetParam();
  const int quiet = 1 << (format.fraction_bits - 1);
  for (int i = 0; i < 1 << 16; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    if ((bits & 0x7fff) <= format.infinity()) continue;
    const float value = format.widen(bits);
    EXPECT_TRUE(std::isnan(value)) << bits;
    EXPECT_EQ(std::signbit(value), bits >> 15 != 0) << bits;
    EXPECT_EQ(format.from_float(value), bits | quiet);
    EXPECT_EQ(format.from_double(value), bits | quiet);
    // What does not fit is cut, even where nothing would be left of it.
    const uint32_t low =
        std::bit_cast<uint32_t>(format.widen(bits & 0x8000)) | 0x7f800001;
    EXPECT_EQ(format.from_float(std::bit_cast<float>(low)),
              (bits & 0x8000) | format.infinity() | quiet);
  }
}

// Between two neighbours: to the nearer, at the middle to the even one.
TEST_P(Float16Test, RoundsToNearestEven) {
  const Format format = GetParam();
  const double infinity = std::numeric_limits<double>::infinity();
  for (int i = 0; i + 1 < format.infinity(); ++i) {
    const uint16_t low = static_cast<uint16_t>(i);
    const uint16_t high = static_cast<uint16_t>(i + 1);
    const double middle =
        (double{format.widen(low)} + double{format.widen(high)}) / 2;
    const uint16_t even = i % 2 == 0 ? low : high;
    EXPECT_EQ(format.from_double(middle), even) << i;
    EXPECT_EQ(format.from_double(-middle), even | 0x8000) << i;
    EXPECT_EQ(format.from_double(std::nextafter(middle, -infinity)), low) << i;
    EXPECT_EQ(format.from_double(std::nextafter(middle, infinity)), high) << i;
    const float f32 = static_cast<float>(middle);
    for (const auto round :
         {+[](const Format&f, float x) { return f.from_float(x); },
          +[](const Format&f, float x) { return f.from_double(x); }}) {
      if (f32 == middle) {
        EXPECT_EQ(round(format, f32), even) << i;
        EXPECT_EQ(round(format, -f32), even | 0x8000) << i;
      }
      EXPECT_EQ(round(format, std::nextafter(f32, -HUGE_VALF)), low) << i;
      EXPECT_EQ(round(format, std::nextafter(f32, HUGE_VALF)), high) << i;
    }
  }
}

TEST_P(Float16Test, TooLargeBecomesInfinite) {
  const Format format = GetParam();
  const uint16_t infinity = format.infinity();
  for (const double huge : {double{std::numeric_limits<float>::max()}, 1e300,
                            std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(format.from_double(huge), infinity);
    EXPECT_EQ(format.from_double(-huge), infinity | 0x8000);
    EXPECT_EQ(format.from_float(static_cast<float>(huge)), infinity);
    EXPECT_EQ(format.from_float(static_cast<float>(-huge)), infinity | 0x8000);
  }
  // Halfway from the largest value to what would follow it.
  const double last = format.widen(infinity - 1);
  const double step = last - format.widen(infinity - 2);
  const float halfway = static_cast<float>(last + step / 2);
  EXPECT_EQ(format.from_float(halfway), infinity);
  EXPECT_EQ(format.from_double(halfway), infinity);
  EXPECT_EQ(format.from_float(std::nextafter(halfway, 0.f)), infinity - 1);
  EXPECT_EQ(format.from_double(std::nextafter(double{halfway}, 0.0)),
            infinity - 1);
}

TEST_P(Float16Test, RoundsDoublesOnce) {
  const Format format = GetParam();
  // To float first, these would land on a midpoint and be rounded the wrong
  // way.
  const double half_step = std::ldexp(1, -format.fraction_bits - 1);
  const uint16_t one = format.from_float(1);
  EXPECT_EQ(format.from_double(1 + half_step + 0x1p-40), one + 1);
  EXPECT_EQ(format.from_double(1 + 3 * half_step - 0x1p-40), one + 1);
  EXPECT_EQ(format.from_double(1e-300), 0);
  EXPECT_EQ(format.from_double(-1e-300), 0x8000);
}

INSTANTIATE_TEST_SUITE_P(F16, Float16Test,
                         ::testing::Values(Format{5, 10, F16ToFloat, FloatToF16,
                                                  DoubleToF16}));
INSTANTIATE_TEST_SUITE_P(BF16, Float16Test,
                         ::testing::Values(Format{8, 7, BF16ToFloat,
                                                  FloatToBF16, DoubleToBF16}));

}  // namespace
}  // namespace attnd
