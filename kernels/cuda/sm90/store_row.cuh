#ifndef ATTND_KERNELS_CUDA_SM90_STORE_ROW_CUH_
#define ATTND_KERNELS_CUDA_SM90_STORE_ROW_CUH_

// Stores rows of accumulators to memory by the threads that hold them.

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/tile/element.cuh"
#include "kernels/cuda/tile/row.cuh"

namespace attnd::cuda::sm90 {

// Stores a row of 16-bit outputs up to column `dim` at `to`, which is aligned
// to 16 bytes, if `stored`. It is the thread's first or second row, by r, 0 or
// 1. Neighbouring lanes exchange words, so that each stores 8 bytes in a
// piece, and the four lanes of a row 32. All lanes of the warp call it.
template <class T, int kCount>
__device__ void StorePairs(const float (&o)[kCount], int r, T* to, bool stored,
                           int dim, int lane) {
  const bool odd = lane & 1;
  const uint64_t at =
      ptx::GlobalAddress(to + 8 * (lane & 1) + 4 * (lane % 4 / 2));
#pragma unroll
  for (int n = 0; n < kCount / 4; n += 2) {
    const int e = 4 * n + 2 * r;
    const uint32_t first = ptx::Pack<T>(o[e], o[e + 1]);
    const uint32_t second = ptx::Pack<T>(o[e + 4], o[e + 5]);
    const uint32_t got = __shfl_xor_sync(0xffffffff, odd ? first : second, 1);
    if (stored && 8 * (n + odd) < dim) {
      ptx::StoreGlobal8(at + 16 * n, odd ? got : first, odd ? second : got);
    }
  }
}

// Stores a row of outputs of any type, element by element.
template <class Out, int kCount>
__device__ void StoreElements(const float (&o)[kCount], int r, Out* to, int dim,
                              int lane) {
#pragma unroll
  for (int n = 0; n < kCount / 4; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = 8 * n + 2 * (lane % 4) + i;
      if (column < dim) to[column] = FromFloat<Out>(o[4 * n + 2 * r + i]);
    }
  }
}

// The same of f32 outputs. Where `aligned` says that `to` is, the four lanes of
// a row store 32 bytes in a piece, which is a whole sector of memory. To
// exchange words, so that each lane stores 16 bytes, takes registers that the
// kernels do not have.
template <int kCount>
__device__ void StoreFloats(const float (&o)[kCount], int r, float* to,
                            bool aligned, int dim, int lane) {
  if (!aligned) {
    StoreElements(o, r, to, dim, lane);
    return;
  }
#pragma unroll
  for (int n = 0; n < kCount / 4; ++n) {
    const int e = 4 * n + 2 * r, column = 8 * n + 2 * (lane % 4);
    if (column < dim) {
      *reinterpret_cast<float2*>(to + column) = make_float2(o[e], o[e + 1]);
    }
  }
}

// How many groups of 8 columns of a row are loaded at once: kTogether, or fewer
// of long rows, as many as there are registers for.
template <int kTogether, int kCount>
inline constexpr int kGroupsAtOnce = kCount / 4 <= 16
                                         ? std::min(kTogether, kCount / 4)
                                         : 4;

// Loads what a lane has of groups of 8 columns, from group `first` on, of a row
// f32[dim] at `from`; 0 from column `dim` on.
template <int kGroups>
__device__ void LoadGroups(const float* from, int first, int dim, int lane,
                           float2 (&x)[kGroups]) {
  const bool aligned = IsAligned(from, 0);
  from += 2 * (lane % 4);
  dim -= 2 * (lane % 4);
#pragma unroll
  for (int n = 0; n < kGroups; ++n) {
    const int column = 8 * (first + n);
    x[n] = make_float2(0.0f, 0.0f);
    if (column >= dim) continue;
    if (aligned) {
      x[n] = *reinterpret_cast<const float2*>(from + column);
    } else {
      x[n].x = from[column];
      x[n].y = from[column + 1];
    }
  }
}

// Adds `weight` times those groups to row r of the accumulators.
template <int kGroups, int kCount>
__device__ void AddGroups(float weight, const float2 (&x)[kGroups], int first,
                          int r, float (&o)[kCount]) {
#pragma unroll
  for (int n = 0; n < kGroups; ++n) {
    const int e = 4 * (first + n) + 2 * r;
    o[e] = fmaf(weight, x[n].x, o[e]);
    o[e + 1] = fmaf(weight, x[n].y, o[e + 1]);
  }
}

// Adds `weight` times a row f32[dim] to row r of the accumulators, kTogether
// groups of 8 columns at once.
template <int kTogether, int kCount>
__device__ void AddRow(float weight, const float* from, int r, int dim,
                       int lane, float (&o)[kCount]) {
  constexpr int kAtOnce = kGroupsAtOnce<kTogether, kCount>;
#pragma unroll
  for (int first = 0; first < kCount / 4; first += kAtOnce) {
    float2 x[kAtOnce];
    LoadGroups(from, first, dim, lane, x);
    AddGroups(weight, x, first, r, o);
  }
}

// The same of both rows, whose loads are on their way together where there are
// registers for that. Null: a row stays as it is.
template <int kTogether, int kCount>
__device__ void AddRows(const float (&weights)[2],
                        const float* const (&from)[2], int dim, int lane,
                        float (&o)[kCount]) {
  constexpr int kAtOnce = kGroupsAtOnce<kTogether, kCount>;
  if constexpr (kAtOnce < kCount / 4) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (from[r] != nullptr) {
        AddRow<kTogether>(weights[r], from[r], r, dim, lane, o);
      }
    }
  } else {
    float2 x[2][kAtOnce];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      LoadGroups(from[r], 0, from[r] == nullptr ? 0 : dim, lane, x[r]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (from[r] != nullptr) AddGroups(weights[r], x[r], 0, r, o);
    }
  }
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_STORE_ROW_CUH_
