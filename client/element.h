#ifndef ATTND_CLIENT_ELEMENT_H_
#define ATTND_CLIENT_ELEMENT_H_

// Elements of tensors in the client's types, at any address.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attnd/client.h"
#include "base/float16.h"

namespace attnd::client {

// A NaN that the client rounds to f16 loses its payload: it is the same NaN
// whatever made it.
inline uint16_t ToF16(double value) {
  if (std::isnan(value)) return std::signbit(value) ? 0xfe00 : 0x7e00;
  return DoubleToF16(value);
}

// Element `index` of an array at `data`. Exact.
inline float LoadElement(DType dtype, const void* data, int64_t index) {
  const auto* bytes = static_cast<const std::byte*>(data);
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, bytes + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes + index * 2, 2);
  return dtype == DType::kF16 ? F16ToFloat(bits) : BF16ToFloat(bits);
}

// Rounds to nearest even where the type is narrower.
inline void StoreElement(DType dtype, float value, void* data, int64_t index) {
  auto* bytes = static_cast<std::byte*>(data);
  if (dtype == DType::kF32) {
    std::memcpy(bytes + index * 4, &value, 4);
    return;
  }
  const uint16_t bits =
      dtype == DType::kF16 ? ToF16(value) : FloatToBF16(value);
  std::memcpy(bytes + index * 2, &bits, 2);
}

}  // namespace attnd::client

#endif  // ATTND_CLIENT_ELEMENT_H_
