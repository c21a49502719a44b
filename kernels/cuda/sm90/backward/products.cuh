#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_PRODUCTS_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_PRODUCTS_CUH_

// The products of a consumer, a warpgroup. They run on after these functions
// return: no one may touch what they read or write until WgmmaWait says that
// they are over. Tiles are panels of 64 columns, 128 bytes of each row, side by
// side (config.h); C is in registers.

#include <cstdint>

#include "kernels/cuda/sm90/wgmma.cuh"

namespace attnd::cuda::sm90 {

// C[64, kN] = A B^T or, if kSubtract, C -= A B^T. A is the 64 rows from `a` on
// of a tile [kARows, kDim], B the tile [kN, kDim] at `b`.
template <class T, int kDim, int kARows, int kN, bool kSubtract = false>
__device__ void StartRowsByRows(uint32_t a, uint32_t b, float (&c)[kN / 2]) {
  using Mma = ptx::Wgmma<T, kN>;
  // Without this, descriptors are kept in registers from tile to tile.
  ptx::Pin(a);
  ptx::Pin(b);
  const uint64_t from_a = ptx::Descriptor(a, 16),
                 from_b = ptx::Descriptor(b, 16);
  ptx::Pin(c);
  ptx::WgmmaFence();
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
    const int panel = d / 4, bytes = d % 4 * 32;
    const uint64_t part_a = ptx::Advance(from_a, panel * kARows * 128 + bytes);
    const uint64_t part_b = ptx::Advance(from_b, panel * kN * 128 + bytes);
    if constexpr (kSubtract) {
      Mma::SubtractNt(c, part_a, part_b);
    } else {
      Mma::Nt(c, part_a, part_b, d > 0);
    }
  }
  ptx::WgmmaCommit();
}

// C[64, kN] += A B. A[64, kDepth] is in registers, rounded, and B the tile
// [kDepth, kN] at `b`.
template <class T, int kDepth, int kN>
__device__ void StartAddToColumns(uint32_t (&a)[kDepth / 4], uint32_t b,
                                  float (&c)[kN / 2]) {
  using Mma = ptx::Wgmma<T, kN>;
  ptx::Pin(b);
  const uint64_t from_b = ptx::Descriptor(b, kDepth * 128);
  ptx::Pin(c);
  ptx::Pin(a);
  ptx::WgmmaFence();
#pragma unroll
  for (int d = 0; d < kDepth / 16; ++d) {
    Mma::Nn(c, a + 4 * d, ptx::Advance(from_b, d * 16 * 128), true);
  }
  ptx::WgmmaCommit();
}

// C[64, kN] += A^T B. A is the panel [kDepth, 64] at `a`, and B the tile
// [kDepth, kN] at `b`.
template <class T, int kDepth, int kN>
__device__ void StartAddColumnsByColumns(uint32_t a, uint32_t b,
                                         float (&c)[kN / 2]) {
  using Mma = ptx::Wgmma<T, kN>;
  ptx::Pin(a);
  ptx::Pin(b);
  const uint64_t from_a = ptx::Descriptor(a, kDepth * 128);
  const uint64_t from_b = ptx::Descriptor(b, kDepth * 128);
  ptx::Pin(c);
  ptx::WgmmaFence();
#pragma unroll
  for (int d = 0; d < kDepth / 16; ++d) {
    Mma::Tn(c, ptx::Advance(from_a, d * 16 * 128),
            ptx::Advance(from_b, d * 16 * 128), true);
  }
  ptx::WgmmaCommit();
}

// C[64, kN] = A B. A is the 64 rows from `a` on of a tile [kARows, kDepth], and
// B the kN columns from `b` on of a tile with kDepth rows.
template <class T, int kDepth, int kARows, int kN>
__device__ void StartRowsByColumns(uint32_t a, uint32_t b, float (&c)[kN / 2]) {
  using Mma = ptx::Wgmma<T, kN>;
  ptx::Pin(a);
  ptx::Pin(b);
  const uint64_t from_a = ptx::Descriptor(a, 16);
  const uint64_t from_b = ptx::Descriptor(b, kDepth * 128);
  ptx::Pin(c);
  ptx::WgmmaFence();
#pragma unroll
  for (int d = 0; d < kDepth / 16; ++d) {
    Mma::Nn(c, ptx::Advance(from_a, d / 4 * kARows * 128 + d % 4 * 32),
            ptx::Advance(from_b, d * 16 * 128), d > 0);
  }
  ptx::WgmmaCommit();
}

// C[64, kN] = A B + A' B', likewise; A' is at `more_a` and B' at `more_b`.
template <class T, int kDepth, int kARows, int kN>
__device__ void StartRowsByColumns(uint32_t a, uint32_t b, uint32_t more_a,
                                   uint32_t more_b, float (&c)[kN / 2]) {
  using Mma = ptx::Wgmma<T, kN>;
  ptx::Pin(a);
  ptx::Pin(b);
  ptx::Pin(more_a);
  ptx::Pin(more_b);
  const uint64_t from_a[] = {ptx::Descriptor(a, 16),
                             ptx::Descriptor(more_a, 16)};
  const uint64_t from_b[] = {ptx::Descriptor(b, kDepth * 128),
                             ptx::Descriptor(more_b, kDepth * 128)};
  ptx::Pin(c);
  ptx::WgmmaFence();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d) {
      Mma::Nn(c, ptx::Advance(from_a[i], d / 4 * kARows * 128 + d % 4 * 32),
              ptx::Advance(from_b[i], d * 16 * 128), i + d > 0);
    }
  }
  ptx::WgmmaCommit();
}

// Rounds accumulators to T. Two neighbouring ones of a thread are a word of A.
template <class T, int kCount>
__device__ void Round(const float (&x)[kCount], uint32_t (&a)[kCount / 2]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    a[i] = ptx::Pack<T>(x[2 * i], x[2 * i + 1]);
  }
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_PRODUCTS_CUH_
