#ifndef ATTND_BASE_FLOAT16_H_
#define ATTND_BASE_FLOAT16_H_

// IEEE 754 binary16 and bfloat16 to float, and from float or double, rounding
// once, to nearest even. Portable: no compiler support for either type is
// needed.

#include <bit>
#include <cmath>
#include <cstdint>

namespace attnd::client {

inline float FromBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// The float on `value`'s way to 16 bits: rounded to odd, so that the second
// rounding gives what a single one would.
inline float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || nearest == value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(nearest) > std::fabs(value)) --bits;  // toward zero
  return std::bit_cast<float>(bits | 1);
}

inline uint16_t ToBf16(double value) {
  uint32_t bits = std::bit_cast<uint32_t>(RoundToOdd(value));
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  bits += 0x7fff + (bits >> 16 & 1);
  return static_cast<uint16_t>(bits >> 16);
}

inline float FromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  const uint32_t biased = exponent == 0x1f ? 0xff : exponent + 127 - 15;
  return std::bit_cast<float>(sign | biased << 23 | fraction << 13);
}

inline uint16_t ToF16(double value) {
  const float odd = RoundToOdd(value);
  const uint32_t bits = std::bit_cast<uint32_t>(odd);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const float magnitude = std::fabs(odd);
  if (std::isnan(value)) return sign | 0x7e00;
  // Halfway between the largest finite value and the next power of two.
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  if (magnitude < 0x1p-14f) {
    // Subnormal: adding 0.5 rounds to a multiple of 2^-24.
    const float shifted = magnitude + 0.5f;
    return sign |
           static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000);
  }
  uint32_t rebased = (bits & 0x7fffffff) - ((127u - 15u) << 23);
  rebased += 0xfff + (rebased >> 13 & 1);
  return sign | static_cast<uint16_t>(rebased >> 13);
}

}  // namespace attnd::client

#endif  // ATTND_BASE_FLOAT16_H_
