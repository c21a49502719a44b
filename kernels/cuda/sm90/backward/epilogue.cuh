#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_EPILOGUE_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_EPILOGUE_CUH_

// From accumulators to dK and dV in memory.

#include <cstdint>

#include "kernels/cuda/sm90/backward/tile.cuh"
#include "kernels/cuda/sm90/store_row.cuh"
#include "kernels/cuda/tile/row.cuh"

namespace attnd::cuda::sm90 {

// Where the block's columns begin in a tensor, in elements.
template <class View>
__device__ int64_t FirstToken(const ColumnBlock& block, const View& view) {
  return block.b * view.batch_stride + block.kv_head * view.head_stride +
         block.columns.first * view.token_stride;
}

// Stores a warp's 16 rows of dK or dV, [16, dim], times `scale` and added to
// those of `before`, where there are such. They are those of the block's
// columns from `first` on; what is past the sequence's length counts as 0. Each
// lane reads and stores the same elements, so `before` may be the memory that
// is stored to.
template <class T, int kCount>
__device__ void StoreTokens(const ColumnBlock& block, const TensorView& view,
                            const ConstTensorView& before, int dim, float scale,
                            int first, int lane, float (&x)[kCount]) {
  if (view.data == nullptr) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int row = first + lane / 4 + 8 * (i % 4 / 2);
    x[i] = row < block.columns.valid ? x[i] * scale : 0.0f;
  }
  const int64_t at = FirstToken(block, view);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first + lane / 4 + 8 * r;
    const bool stored = row < block.columns.stored;
    if (before.data != nullptr && stored) {
      const float* from = static_cast<const float*>(before.data) +
                          FirstToken(block, before) + row * before.token_stride;
      AddRow<8>(1.0f, from, r, dim, lane, x);
    }
    if (view.dtype == DType::kF32) {
      float* to = static_cast<float*>(view.data) + at + row * view.token_stride;
      if (stored) StoreFloats(x, r, to, IsAligned(to, 0), dim, lane);
      continue;
    }
    T* tensor = static_cast<T*>(view.data) + at;
    T* to = tensor + row * view.token_stride;
    if (IsAligned(tensor, view.token_stride)) {
      StorePairs(x, r, to, stored, dim, lane);
    } else if (stored) {
      StoreElements(x, r, to, dim, lane);
    }
  }
}

// (E13), which has no scale.
template <class T, int kCount>
__device__ void StoreDv(const ColumnBlock& block, int first, int lane,
                        float (&d_v)[kCount]) {
  StoreTokens<T>(block, block.d_v, block.d_v_before, block.value_dim, 1.0f,
                 first, lane, d_v);
}
// (E18), the scale of which the sums lack.
template <class T, int kCount>
__device__ void StoreDk(const ColumnBlock& block, int first, int lane,
                        float (&d_k)[kCount]) {
  StoreTokens<T>(block, block.d_k, block.d_k_before, block.head_dim,
                 block.scale, first, lane, d_k);
}

// Both, of a consumer that has both.
template <class Config>
__device__ void StoreColumns(const ColumnBlock& block, int first, int lane,
                             float (&d_k)[Config::kDim / 2],
                             float (&d_v)[Config::kValueDim / 2]) {
  StoreDv<typename Config::T>(block, first, lane, d_v);
  StoreDk<typename Config::T>(block, first, lane, d_k);
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_EPILOGUE_CUH_
