#ifndef ATTND_KERNELS_DTYPE_H_
#define ATTND_KERNELS_DTYPE_H_

// Elements of tensors in any of the kernels' types; base/float16.h converts f16
// and bf16.

#include <cstdint>

#include "base/float16.h"
#include "kernels/attention.h"

namespace attnd {

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
