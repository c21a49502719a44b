#include "client/attnload/element.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace attnd::attnload {
namespace {

using client::DType;

float FromHalf(uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  float value;
  if (exponent == 31) {
    value = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(float(mantissa), -24);
  } else {
    value = std::ldexp(float(mantissa + 1024), exponent - 25);
  }
  return half & 0x8000 ? -value : value;
}

// `value` is zero or normal, and exact in 16 bits.
uint16_t ToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = bits >> 16 & 0x8000;
  if (value == 0) return sign;
  const int exponent = int(bits >> 23 & 255) - 127 + 15;
  return sign | uint16_t(exponent << 10) | uint16_t(bits >> 13 & 1023);
}

}  // namespace

float LoadElement(DType dtype, const std::byte* data, int64_t index) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, 2);
  return dtype == DType::kF16 ? FromHalf(bits)
                              : std::bit_cast<float>(uint32_t(bits) << 16);
}

void StoreElement(DType dtype, float value, std::byte* data, int64_t index) {
  if (dtype == DType::kF32) {
    std::memcpy(data + index * 4, &value, 4);
    return;
  }
  const uint16_t bits = dtype == DType::kF16
                            ? ToHalf(value)
                            : uint16_t(std::bit_cast<uint32_t>(value) >> 16);
  std::memcpy(data + index * 2, &bits, 2);
}

double UnitRoundoff(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return std::ldexp(1.0, -24);
    case DType::kF16:
      return std::ldexp(1.0, -11);
    case DType::kBF16:
      return std::ldexp(1.0, -8);
  }
  return 0;
}

}  // namespace attnd::attnload
