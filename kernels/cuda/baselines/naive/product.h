#ifndef ATTND_KERNELS_CUDA_BASELINES_NAIVE_PRODUCT_H_
#define ATTND_KERNELS_CUDA_BASELINES_NAIVE_PRODUCT_H_

// Products of matrices, many alike at a time: what naive attention is made of.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/attention.h"

namespace attnd::cuda {

// As many elements further on.
template <class Void>
Void* Advance(Void* data, DType dtype, int64_t elements) {
  using Byte =
      std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  return static_cast<Byte*>(data) + elements * SizeOf(dtype);
}

// `count` products whose matrices lie so many elements apart; 0: the same one.
struct Repeat {
  int64_t count = 1;
  int64_t a = 0, b = 0, c = 0;
};

// C[m, n] = scale A[m, k] B[k, n], once for every combination of its repeats.
// Rows are contiguous, and `ld` elements apart. Sizes are at least 1.
struct Product {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  DType dtype = DType::kF32;    // of A and B
  DType c_dtype = DType::kF32;  // f32 or `dtype`
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  float scale = 1.0f;             // of sums in f32, before they are rounded
  bool a_transposed = false;      // A is given as [k, m]
  bool b_transposed = false;      // B is given as [n, k]
  bool accumulate = false;        // C += instead; C is f32
  std::array<Repeat, 3> repeats;  // from the outermost to the innermost

  int64_t repeated() const {
    return repeats[0].count * repeats[1].count * repeats[2].count;
  }
};

// The same products with as few repeats as can be, the longest of them last.
// The others' counts are then how often a library that knows only one has to
// be called.
Product Fold(Product product);

// Runs them by a plain kernel: tiles in shared memory, f32 FMA.
cudaError_t LaunchTiledProduct(const Product& product, cudaStream_t stream);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_NAIVE_PRODUCT_H_
