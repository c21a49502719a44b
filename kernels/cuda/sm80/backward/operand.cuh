#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_OPERAND_CUH_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_OPERAND_CUH_

// A warp's products of matrices in shared memory, in tiles as in tile.cuh,
// either way round: the lines of a tile run along what is summed over, or
// across it. A may be in registers, too. What else there is to do can be done
// in between, so that it does not keep the tensor cores waiting.

#include <cstdint>

#include "kernels/cuda/sm80/tile.cuh"
#include "kernels/cuda/tile/ptx.cuh"

namespace attnd::cuda::sm80 {

enum class Lines { kAlongSum, kAcrossSum };

// A of mma: from row `first` of the matrix on, from `from` on in the sum, both
// multiples of 16.
template <class Layout, Lines kLines>
class OperandA {
 public:
  __device__ OperandA(uint32_t tile, int first, int from, int lane) {
    if constexpr (kLines == Lines::kAlongSum) {
      address_ = tile + Layout::Offset(first + (lane & 15), lane >> 4);
      chunk_ = from / 8;
    } else {
      address_ = tile + Layout::Offset(from + (lane & 7) + ((lane >> 4) << 3),
                                       (lane >> 3) & 1);
      chunk_ = first / 8;
    }
  }

  // Rows 16 t to 16 t + 15 from there, at 16 k to 16 k + 15 of the sum.
  __device__ void Load(int t, int k, uint32_t (&a)[4]) const {
    if constexpr (kLines == Lines::kAlongSum) {
      ptx::Ldmatrix(
          a, Layout::Step(address_, chunk_ + 2 * k) + Layout::Bytes(16 * t));
    } else {
      ptx::LdmatrixTrans(
          a, Layout::Step(address_, chunk_ + 2 * t) + Layout::Bytes(16 * k));
    }
  }

 private:
  uint32_t address_;
  int chunk_;  // of a line, where the rows begin, or the sum
};

// A of mma from what a product has left, rounded to T: two accumulators side by
// side are one A.
template <class T, int kTiles, int kN>
class RegistersA {
 public:
  __device__ explicit RegistersA(const float (&x)[kTiles][kN][4]) : x_(x) {}

  __device__ void Load(int t, int k, uint32_t (&a)[4]) const {
    const float(&left)[4] = x_[t][2 * k], (&right)[4] = x_[t][2 * k + 1];
    a[0] = ptx::Pack<T>(left[0], left[1]);
    a[1] = ptx::Pack<T>(left[2], left[3]);
    a[2] = ptx::Pack<T>(right[0], right[1]);
    a[3] = ptx::Pack<T>(right[2], right[3]);
  }

 private:
  const float (&x_)[kTiles][kN][4];
};

// B of mma: from column `first` of the matrix on, from `from` on in the sum.
template <class Layout, Lines kLines>
class OperandB {
 public:
  __device__ OperandB(uint32_t tile, int first, int from, int lane) {
    if constexpr (kLines == Lines::kAlongSum) {
      address_ = tile + Layout::Offset(first + (lane & 7) + ((lane >> 4) << 3),
                                       (lane >> 3) & 1);
      chunk_ = from / 8;
    } else {
      address_ = tile + Layout::Offset(from + (lane & 15), lane >> 4);
      chunk_ = first / 8;
    }
  }

  // Columns 8 n to 8 n + 15 from there, for an even n.
  __device__ void Load(int n, int k, uint32_t (&b)[4]) const {
    if constexpr (kLines == Lines::kAlongSum) {
      ptx::Ldmatrix(
          b, Layout::Step(address_, chunk_ + 2 * k) + Layout::Bytes(8 * n));
    } else {
      ptx::LdmatrixTrans(
          b, Layout::Step(address_, chunk_ + n) + Layout::Bytes(16 * k));
    }
  }

 private:
  uint32_t address_;
  int chunk_;
};

template <int kTiles, int kN>
__device__ void Clear(float (&c)[kTiles][kN][4]) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) c[t][n][i] = 0.0f;
    }
  }
}

struct Nothing {
  __device__ void operator()(int, int) const {}
};

// C += A B, summed over kSum. Calls between(i, count) for i = 0, 1, ..., all of
// which the compiler knows.
template <class T, int kSum, class A, class B, int kTiles, int kN,
          class Between = Nothing>
__device__ void AddProduct(const A& a, const B& b, float (&c)[kTiles][kN][4],
                           const Between& between = {}) {
  static_assert(kSum % 16 == 0 && kN % 2 == 0);
  constexpr int kCount = kSum / 16 * (kN / 2);
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
      between(k * (kN / 2) + n / 2, kCount);
    }
  }
}

// Of what has kParts parts and is done in `count` shares, does share i: calls
// do_part with each of its parts, in order.
template <int kParts, class DoPart>
__device__ void DoShare(int i, int count, const DoPart& do_part) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    if (part * count / kParts == i) do_part(part);
  }
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_OPERAND_CUH_
