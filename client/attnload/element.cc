#include "client/attnload/element.h"

#include <cmath>
#include <cstring>

#include "base/float16.h"

namespace attnd::attnload {

using client::DType;

float LoadElement(DType dtype, const std::byte* data, int64_t index) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, 2);
  return dtype == DType::kF16 ? client::FromF16(bits) : client::FromBf16(bits);
}

void StoreElement(DType dtype, float value, std::byte* data, int64_t index) {
  if (dtype == DType::kF32) {
    std::memcpy(data + index * 4, &value, 4);
    return;
  }
  const uint16_t bits =
      dtype == DType::kF16 ? client::ToF16(value) : client::ToBf16(value);
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
