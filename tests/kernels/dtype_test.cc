#include "kernels/dtype.h"

#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace attnd {
namespace {

struct Format {
  DType dtype;
  int mantissa_bits, min_exponent, infinity;  // infinity: its bits
  float (*decode)(uint16_t);
  uint16_t (*from_float)(float);
  uint16_t (*from_double)(double);
};
constexpr Format kFormats[] = {
    {DType::kF16, 10, -14, 0x7c00, F16ToFloat, FloatToF16, DoubleToF16},
    {DType::kBF16, 7, -126, 0x7f80, BF16ToFloat, FloatToBF16, DoubleToBF16},
};

// Bits as IEEE 754 defines them.
double Decode(const Format& f, uint16_t bits) {
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const int exponent = (bits & 0x7fff) >> f.mantissa_bits;
  const double value =
      exponent == 0
          ? std::ldexp(mantissa, f.min_exponent - f.mantissa_bits)
          : std::ldexp(mantissa + (1 << f.mantissa_bits),
                       f.min_exponent + exponent - 1 - f.mantissa_bits);
  return bits & 0x8000 ? -value : value;
}

TEST(DTypeTest, DecodesAndEncodesEveryValue) {
  for (const Format& f : kFormats) {
    for (int bits = 0; bits <= 0xffff; ++bits) {
      const float value = f.decode(bits);
      if ((bits & 0x7fff) > f.infinity) {
        EXPECT_TRUE(std::isnan(value)) << bits;
        EXPECT_GT(f.from_float(value) & 0x7fff, f.infinity) << bits;
        EXPECT_GT(f.from_double(value) & 0x7fff, f.infinity) << bits;
        continue;
      }
      if ((bits & 0x7fff) == f.infinity)
        EXPECT_EQ(value, bits & 0x8000 ? -INFINITY : INFINITY);
      else
        EXPECT_EQ(value, Decode(f, bits)) << bits;
      EXPECT_EQ(f.from_float(value), bits);
      EXPECT_EQ(f.from_double(value), bits);
    }
  }
}

TEST(DTypeTest, RoundsMidpointsToEvenAndTheRestToTheNearest) {
  for (const Format& f : kFormats) {
    for (int bits = 0; bits < f.infinity; ++bits) {
      // What follows the largest is where infinity would be.
      const double low = Decode(f, bits), high = Decode(f, bits + 1);
      const double middle = low + (high - low) / 2;
      const int even = bits + (bits & 1);
      for (int sign : {0, 0x8000}) {
        const double s = sign ? -1 : 1;
        EXPECT_EQ(f.from_double(s * middle), even | sign);
        EXPECT_EQ(f.from_double(s * std::nextafter(middle, 0)), bits | sign);
        EXPECT_EQ(f.from_double(s * std::nextafter(middle, INFINITY)),
                  (bits + 1) | sign);
        if (static_cast<double>(static_cast<float>(middle)) != middle) continue;
        const float m = middle;
        EXPECT_EQ(f.from_float(s * m), even | sign);
        EXPECT_EQ(f.from_float(s * std::nextafter(m, 0.0f)), bits | sign);
        EXPECT_EQ(f.from_float(s * std::nextafter(m, INFINITY)),
                  (bits + 1) | sign);
      }
    }
  }
}

TEST(DTypeTest, RoundsDoublesOnce) {
  // To float first, this would land on a midpoint and be rounded up.
  EXPECT_EQ(DoubleToF16(1 + 0x1p-11 - 0x1p-40), FloatToF16(1.0f));
  EXPECT_EQ(DoubleToBF16(1 + 0x1p-8 + 0x1p-40), FloatToBF16(1.0f + 0x1p-7f));
  EXPECT_EQ(DoubleToF16(1e300), 0x7c00);
  EXPECT_EQ(DoubleToBF16(-1e300), 0xff80);
  EXPECT_EQ(DoubleToF16(1e-300), 0);
  EXPECT_EQ(DoubleToBF16(-1e-300), 0x8000);
}

}  // namespace
}  // namespace attnd
