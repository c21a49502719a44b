#ifndef ATTND_KERNELS_CUDA_SM80_OPERAND_CUH_
#define ATTND_KERNELS_CUDA_SM80_OPERAND_CUH_

// Products of matrices that both lie in shared memory, in tiles as in tile.cuh,
// either way round: the lines of a tile run along what is summed over, or
// across it.

#include <cstdint>

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/sm80/tile.cuh"

namespace attnd::cuda::sm80 {

enum class Lines { kAlongSum, kAcrossSum };

// A of mma, from row `first` of the matrix on, a multiple of 16.
template <class Layout, Lines kLines>
class OperandA {
 public:
  __device__ OperandA(uint32_t tile, int first, int lane)
      : address_(kLines == Lines::kAlongSum
                     ? tile + Layout::Offset(first + (lane & 15), lane >> 4)
                     : tile + Layout::Offset((lane & 7) + ((lane >> 4) << 3),
                                             (lane >> 3) & 1)),
        chunk_(kLines == Lines::kAlongSum ? 0 : first / 8) {}

  // Rows 16 t to 16 t + 15 from there, at 16 k to 16 k + 15 of the sum.
  __device__ void Load(int t, int k, uint32_t (&a)[4]) const {
    if constexpr (kLines == Lines::kAlongSum) {
      ptx::Ldmatrix(a, Layout::Step(address_, 2 * k) + Layout::Bytes(16 * t));
    } else {
      ptx::LdmatrixTrans(
          a, Layout::Step(address_, chunk_ + 2 * t) + Layout::Bytes(16 * k));
    }
  }

 private:
  const uint32_t address_;
  const int chunk_;  // where the rows begin in a line across the sum
};

// B of mma whose lines run across the sum, from column `first` of the matrix
// on, a multiple of 16.
template <class Layout>
class OperandB {
 public:
  __device__ OperandB(uint32_t tile, int first, int lane)
      : address_(tile + Layout::Offset(lane & 15, lane >> 4)),
        chunk_(first / 8) {}

  // Columns 8 n to 8 n + 15 from there, for an even n.
  __device__ void Load(int n, int k, uint32_t (&b)[4]) const {
    ptx::LdmatrixTrans(
        b, Layout::Step(address_, chunk_ + n) + Layout::Bytes(16 * k));
  }

 private:
  const uint32_t address_;
  const int chunk_;
};

// C += A B, summed over kSum.
template <class T, int kSum, class A, class B, int kTiles, int kN>
__device__ void AddProduct(const A& a, const B& b, float (&c)[kTiles][kN][4]) {
  static_assert(kSum % 16 == 0 && kN % 2 == 0);
#pragma unroll
  for (int k = 0; k < kSum / 16; ++k) {
    uint32_t x[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) a.Load(t, k, x[t]);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t y[4];
      b.Load(n, k, y);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        ptx::Mma<T>(c[t][n], x[t], y[0], y[1]);
        ptx::Mma<T>(c[t][n + 1], x[t], y[2], y[3]);
      }
    }
  }
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_OPERAND_CUH_
