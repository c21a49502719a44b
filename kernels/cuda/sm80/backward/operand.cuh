#ifndef ATTND_KERNELS_CUDA_SM80_BACKWARD_OPERAND_CUH_
#define ATTND_KERNELS_CUDA_SM80_BACKWARD_OPERAND_CUH_

// A warp's products of matrices whose tiles are in shared memory, laid out as
// in tile.cuh. The lines of a tile may run along the dimension that is summed
// over or across it, and A may be in registers instead. Other work can be done
// between the instructions of a product, so that tensor cores do not wait.

#include <cstdint>

#include "kernels/cuda/sm80/tile.cuh"
#include "kernels/cuda/tile/ptx.cuh"

namespace attnd::cuda::sm80 {

enum class Lines { kAlongSum, kAcrossSum };

// A operands of mma from a tile: those of a matrix that begins at row `first`
// of A and at `from` of the sum, both multiples of 16.
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

  // Loads its rows 16 t to 16 t + 15, at 16 k to 16 k + 15 of the sum.
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
  uint32_t address_;  // the line and chunk that this lane names to ldmatrix
  // The chunk of a line at which the sum begins or, if lines run across it, the
  // rows or columns.
  int chunk_;
};

// A operands of mma from the accumulators of another product, rounded to T: two
// accumulators side by side are one A.
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

// B operands of mma from a tile: those of a matrix that begins at column
// `first` of B and at `from` of the sum, both multiples of 16.
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

  // Loads two operands: its columns 8 n to 8 n + 15 for an even n, at 16 k to
  // 16 k + 15 of the sum.
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
  int chunk_;  // these two as OperandA's
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

// A `between` for AddProduct that does nothing.
struct Nothing {
  __device__ void operator()(int, int) const {}
};

// C += A B, summed over kSum. Between its instructions it calls
// between(i, count) for i = 0, 1, ..., count - 1. All loops are unrolled, so
// that i is a constant.
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

// Spreads kParts parts of some work evenly over `count` calls: call i does its
// share of them, calling do_part with each part's number, in order.
template <int kParts, class DoPart>
__device__ void DoShare(int i, int count, const DoPart& do_part) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    if (part * count / kParts == i) do_part(part);
  }
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_BACKWARD_OPERAND_CUH_
