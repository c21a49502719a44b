#ifndef ATTND_KERNELS_DTYPE_H_
#define ATTND_KERNELS_DTYPE_H_

// f16 and bf16 to and from float and double, rounding once, to nearest even.
// Infinities stay, overflow becomes infinite, NaN stays a (quiet) NaN, and
// subnormals are kept. Nothing depends on compiler support for the types.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/attention.h"

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

// Element `index` of an array of any type. Exact.
inline float LoadElement(const void* data, DType dtype, int64_t index) {
  if (dtype == DType::kF32) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return dtype == DType::kF16 ? F16ToFloat(bits) : BF16ToFloat(bits);
}

inline void StoreElement(void* data, DType dtype, int64_t index, double value) {
  if (dtype == DType::kF32)
    static_cast<float*>(data)[index] = static_cast<float>(value);
  else
    static_cast<uint16_t*>(data)[index] =
        dtype == DType::kF16 ? DoubleToF16(value) : DoubleToBF16(value);
}

// `value` as it reads back after being stored.
inline double RoundTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<float>(value);
    case DType::kF16:
      return F16ToFloat(DoubleToF16(value));
    case DType::kBF16:
      return BF16ToFloat(DoubleToBF16(value));
  }
  return value;
}

}  // namespace attnd

#endif  // ATTND_KERNELS_DTYPE_H_
