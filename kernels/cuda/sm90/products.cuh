#ifndef ATTND_KERNELS_CUDA_SM90_PRODUCTS_CUH_
#define ATTND_KERNELS_CUDA_SM90_PRODUCTS_CUH_

// The two products of a warpgroup. They run on after these functions return: no
// one may touch what they read or write until WgmmaWait says that they are
// over.

#include <cstdint>

#include "kernels/cuda/sm90/config.h"
#include "kernels/cuda/sm90/wgmma.cuh"

namespace attnd::cuda::sm90 {

// S = Q K^T, (E1) before the scale: S [64, kCols] from the consumer's rows of
// Q, [64, kDim] at `q`, and a tile of K, [kCols, kDim] at `k`.
template <class Config>
__device__ void StartQK(uint32_t q, uint32_t k, float (&s)[Config::kCols / 2]) {
  using Mma = ptx::Wgmma<typename Config::T, Config::kCols>;
  // Without this, descriptors are kept in registers from tile to tile.
  ptx::Pin(q);
  const uint64_t a = ptx::Descriptor(q, 16), b = ptx::Descriptor(k, 16);
  ptx::Pin(s);
  ptx::WgmmaFence();
#pragma unroll
  for (int d = 0; d < Config::kDim / 16; ++d) {
    const int panel = d / 4, bytes = d % 4 * 32;
    Mma::Nt(s, ptx::Advance(a, panel * kConsumerRows * 128 + bytes),
            ptx::Advance(b, panel * Config::kCols * 128 + bytes), d > 0);
  }
  ptx::WgmmaCommit();
}

// O = P V or, if `accumulate`, O += P V, part of (E9): P [64, kCols] is rounded
// and in registers, V [kCols, kValueDim] at `v`, O [64, kValueDim].
template <class Config>
__device__ void StartPV(uint32_t (&p)[Config::kCols / 4], uint32_t v,
                        bool accumulate, float (&o)[Config::kValueDim / 2]) {
  using Mma = ptx::Wgmma<typename Config::T, Config::kValueDim>;
  const uint64_t b = ptx::Descriptor(v, Config::kCols * 128);
  ptx::Pin(o);
  ptx::Pin(p);
  ptx::WgmmaFence();
#pragma unroll
  for (int n = 0; n < Config::kCols / 16; ++n) {
    Mma::Nn(o, p + 4 * n, ptx::Advance(b, n * 16 * 128), accumulate || n > 0);
  }
  ptx::WgmmaCommit();
}

// Rounds P to T. Two neighbouring accumulators of a thread are a word of A.
template <class T, int kCount>
__device__ void RoundP(const float (&s)[kCount], uint32_t (&p)[kCount / 2]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    p[i] = ptx::Pack<T>(s[2 * i], s[2 * i + 1]);
  }
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_PRODUCTS_CUH_
