#ifndef ATTND_BASE_FLOAT16_H_
#define ATTND_BASE_FLOAT16_H_

// f16 (IEEE 754 binary16) and bf16 to float, and from float or double, rounding
// once, to nearest even. Infinities stay, overflow becomes infinite, subnormals
// are kept. A NaN stays a NaN of its sign, quiet once rounded, with as much of
// its payload as there is room for. Nothing depends on compiler support for the
// types.

#include <bit>
#include <cmath>
#include <cstdint>

namespace attnd {

inline float BF16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t FloatToBF16(float value) {
  const uint32_t x = std::bit_cast<uint32_t>(value);
  if ((x & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>(x >> 16 | 0x0040);  // NaN
  return static_cast<uint16_t>((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

inline float F16ToFloat(uint16_t bits) {
  constexpr uint32_t kRebias = (127 - 15) << 23;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  uint32_t x = static_cast<uint32_t>(bits & 0x7fff) << 13;
  if (x >= 0x1f << 23) {
    x += 2 * kRebias;  // infinity, NaN
  } else if (x >= 1 << 23) {
    x += kRebias;
  } else {  // zero, subnormal: a multiple of 2^-24
    x = std::bit_cast<uint32_t>(static_cast<float>(bits & 0x3ff) * 0x1p-24f);
  }
  return std::bit_cast<float>(sign | x);
}

inline uint16_t FloatToF16(float value) {
  constexpr uint32_t kRebias = (127 - 15) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t x = bits & 0x7fffffff;
  uint32_t half = 0;
  if (x > 0x7f800000) {
    half = 0x7e00 | (x >> 13 & 0x3ff);  // NaN
  } else if (x >= 0x477ff000) {
    half = 0x7c00;  // from 65520, midway to 65536
  } else if (x >= 0x38800000) {
    half = (x + 0xfff + (x >> 13 & 1) - kRebias) >> 13;
  } else {
    // In [0.5, 1) a float's last bit is 2^-24, as a subnormal half's: the
    // addition rounds.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(x) + 0.5f) - 0x3f000000;
  }
  return static_cast<uint16_t>(sign | half);
}

// The float on `value`'s way to a narrower type: rounded to odd, so that the
// second rounding gives what a single one would.
inline float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value))
    return nearest;
  uint32_t x = std::bit_cast<uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value))
    --x;  // toward zero
  return std::bit_cast<float>(x | 1);
}

inline uint16_t DoubleToBF16(double value) {
  return FloatToBF16(RoundToOdd(value));
}
inline uint16_t DoubleToF16(double value) {
  return FloatToF16(RoundToOdd(value));
}

}  // namespace attnd

#endif  // ATTND_BASE_FLOAT16_H_
