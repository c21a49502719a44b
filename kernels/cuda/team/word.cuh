#ifndef ATTND_KERNELS_CUDA_TEAM_WORD_CUH_
#define ATTND_KERNELS_CUDA_TEAM_WORD_CUH_

#include <cstdint>

#include "kernels/cuda/tile/element.cuh"

namespace attnd::cuda {

// Neighbouring elements of a row that one thread adds up.
template <int kElements>
struct Word {
  alignas(kElements >= 4 ? 16 : 4) float elements[kElements];

  // The first `count`, if those are fewer. Nobody reads them again, so they are
  // loaded as streaming data.
  __device__ void Load(const float* from, int64_t count) {
    if (kElements >= 4 && count >= kElements) {
#pragma unroll
      for (int i = 0; i < kElements / 4; ++i) {
        reinterpret_cast<float4*>(elements)[i] =
            __ldcs(reinterpret_cast<const float4*>(from) + i);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      elements[i] = i < count ? __ldcs(from + i) : 0.0f;
    }
  }

  template <class Out>
  __device__ void Store(Out* to, int64_t count) const {
    alignas(16) Out rounded[kElements];
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      rounded[i] = FromFloat<Out>(elements[i]);
    }
    if (kElements >= 4 && count >= kElements) {
      static_assert(kElements < 4 || sizeof(rounded) == 16);
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(rounded);
      return;
    }
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      if (i < count) to[i] = rounded[i];
    }
  }
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TEAM_WORD_CUH_
