#ifndef ATTND_KERNELS_CUDA_SM80_QUERY_CUH_
#define ATTND_KERNELS_CUDA_SM80_QUERY_CUH_

// The rows of Q that a block decodes: queries of all q heads that share a K/V
// head, the group. Row i * group + g is query i of the group's head g.

#include <cstdint>

#include "kernels/cuda/tile/open_tile.cuh"

namespace attnd::cuda::sm80 {

// The rows of one sequence and K/V head, from `first` on.
template <class T>
struct QueryRows {
  const T* q;  // token 0 of the group's first head
  int64_t head_stride, token_stride;
  // The q heads of the K/V head, and where Row(0) is among its rows.
  uint32_t group, first;

  __device__ QueryRows(const ConstTensorView& view, int64_t b, int64_t kv_head,
                       uint32_t group, uint32_t first)
      : q(static_cast<const T*>(view.data) + b * view.batch_stride +
          kv_head * group * view.head_stride),
        head_stride(view.head_stride),
        token_stride(view.token_stride),
        group(group),
        first(first) {}

  __device__ const T* Row(int r) const {
    const Quotient place = Divide(first + r, group);
    return q + place.remainder * head_stride + place.quotient * token_stride;
  }
};

// Loads rows 0-15, of `dim` elements, from memory to registers as A operands of
// mma, q[d] for columns 16 d to 16 d + 15. Rows from `valid` on are not read
// and become 0. kWhole says that dim is kDim and rows are aligned to 4 bytes.
template <int kDim, bool kWhole, class T>
__device__ void LoadQ(const QueryRows<T>& rows, int valid, int dim, int lane,
                      uint32_t (&q)[kDim / 16][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (8 * r >= valid) {
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) q[d][r] = q[d][2 + r] = 0;
      continue;
    }
    const int row = lane / 4 + 8 * r;
    const bool inside = row < valid;
    const T* from = inside ? rows.Row(row) : rows.q;
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = 16 * d + 8 * half + 2 * (lane % 4);
        uint32_t& pair = q[d][2 * half + r];
        if constexpr (kWhole) {
          pair = inside ? *reinterpret_cast<const uint32_t*>(from + column) : 0;
        } else {
          const auto* bits = reinterpret_cast<const uint16_t*>(from);
          const uint32_t low = inside && column < dim ? bits[column] : 0;
          const uint32_t high =
              inside && column + 1 < dim ? bits[column + 1] : 0;
          pair = low | high << 16;
        }
      }
    }
  }
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_QUERY_CUH_
