#ifndef ATTND_TESTS_EMULATION_MATRIX_H_
#define ATTND_TESTS_EMULATION_MATRIX_H_

// What a warp does with matrices of 8 x 8 16-bit elements, of each of which a
// lane has two, and mma of them. How lanes hold what, kernels/cuda/tile/ptx.cuh
// says.

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/dtype.h"

namespace attnd::emulation {

// A 16-bit element; and the `which`th of the two in a word.
inline float ToFloat(uint16_t bits, DType type) {
  return type == DType::kF16 ? F16ToFloat(bits) : BF16ToFloat(bits);
}
inline float ToFloat(uint32_t word, int which, DType type) {
  return ToFloat(static_cast<uint16_t>(word >> (16 * which)), type);
}

// Four of them from and to shared memory.
void LoadMatrices(uint32_t (&r)[4], uint32_t row, bool transposed);
void StoreMatrices(uint32_t row, const uint32_t (&r)[4], bool transposed);

// C[16, 8] += A[16, 16] B[16, 8].
void MultiplyMatrices(float (&c)[4], const uint32_t (&a)[4],
                      const uint32_t (&b)[2], DType type);

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_MATRIX_H_
