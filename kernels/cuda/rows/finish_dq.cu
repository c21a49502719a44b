#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch/gradient.h"
#include "kernels/cuda/rows/gradient_rows.h"
#include "kernels/cuda/rows/row_tile.cuh"
#include "kernels/cuda/tile/dq_sum.cuh"
#include "kernels/cuda/tile/element.cuh"
#include "kernels/cuda/tile/row.cuh"

namespace attnd::cuda {
namespace {

// A warp has 16 rows, as the sums' blocks do, of which a lane has two: 0 or 1
// is the `half`. It takes 32 columns of a half at a time, a step: each lane
// reads four sums of either block of 16 by 16, and the four lanes of a row turn
// these into eight neighbours each.
constexpr int kWarpRows = 16;
constexpr int kStepColumns = 32;
// 128 bytes of a lane are under way at once.
constexpr int kStepsTogether = 4;
static_assert(kTileThreads / 32 * kWarpRows == kTileRows);

// Sums that lane 4 r + q has in row 8 half + r: columns 2 q, 2 q + 1, 2 q + 8
// and 2 q + 9 of the block'th 16 ones. `first` is where it has the first of
// all, of rows of `dim` columns. They are read once, now.
template <DqLayout kLayout>
__device__ float4 LoadSums(const float* first, int half, int block, int dim) {
  if constexpr (kLayout == DqLayout::kRows) {
    const float* from = first + half * 8 * dim + block * 16;
    const float2 low = __ldcs(reinterpret_cast<const float2*>(from));
    const float2 high = __ldcs(reinterpret_cast<const float2*>(from + 8));
    return make_float4(low.x, low.y, high.x, high.y);
  } else {
    const float* from = first + block * 256 + half * 128;
    if constexpr (kLayout == DqLayout::kQuads) {
      return __ldcs(reinterpret_cast<const float4*>(from));
    }
    return make_float4(__ldcs(from), __ldcs(from + 32), __ldcs(from + 64),
                       __ldcs(from + 96));
  }
}

// Upper lanes get their partners' `high` for `low`, lower ones `low` for
// `high`; partners are `distance` lanes apart.
template <class Word>
__device__ void Exchange(bool upper, int distance, Word& low, Word& high) {
  const Word got = __shfl_xor_sync(0xffffffff, upper ? low : high, distance);
  (upper ? low : high) = got;
}

// Word n of lane q of four becomes word q of lane n.
template <class Word>
__device__ void Transpose(Word (&words)[4]) {
  const bool odd = threadIdx.x % 2 != 0, second = threadIdx.x % 4 >= 2;
  Exchange(odd, 1, words[0], words[1]);
  Exchange(odd, 1, words[2], words[3]);
  Exchange(second, 2, words[0], words[2]);
  Exchange(second, 2, words[1], words[3]);
}

template <class Out>
struct PairWord;
template <>
struct PairWord<float> {
  using Type = unsigned long long;
};
template <>
struct PairWord<__half> {
  using Type = uint32_t;
};
template <>
struct PairWord<__nv_bfloat16> {
  using Type = uint32_t;
};

// Two neighbouring elements of a row, `low` first.
template <class Out>
__device__ typename PairWord<Out>::Type MakePair(float low, float high) {
  using Word = typename PairWord<Out>::Type;
  alignas(Word) const Out pair[2] = {FromFloat<Out>(low), FromFloat<Out>(high)};
  return *reinterpret_cast<const Word*>(pair);
}

// A row's eight elements, of which there may be fewer.
template <class Word, class Out>
__device__ void Store(const Word (&words)[4], Out* to, int count,
                      bool aligned) {
  alignas(16) Word pairs[4] = {words[0], words[1], words[2], words[3]};
  if (aligned && count >= 8) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(pairs) / 16); ++i) {
      reinterpret_cast<uint4*>(to)[i] =
          reinterpret_cast<const uint4*>(pairs)[i];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < count) to[i] = reinterpret_cast<const Out*>(pairs)[i];
  }
}

// dQ of a warp's rows, where row 0 of the tile has its own at `dq`.
template <DqLayout kLayout, class Out>
__device__ void FinishRows(const RowTile& tile, const float* scratch, Out* dq) {
  const DeviceProblem& p = *tile.problem;
  const DeviceGradients& g = *tile.gradients;
  const int end =
      static_cast<int>(min(p.q_len - tile.first_row, int64_t{kTileRows}));
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kWarpRows;
  if (warp_row >= end) return;
  const int quad = threadIdx.x % 4, row = threadIdx.x % 32 / 4;
  const float* lse = scratch + g.lse_at + tile.PaddedRow() + warp_row + row;
  const bool sees[2] = {lse[0] != INFINITY, lse[8] != INFINITY};
  const float* sums = scratch + g.dq_at +
                      (tile.PaddedRow() + warp_row) * g.dq_dim +
                      DqPlace(kLayout, row, 2 * quad, g.dq_dim);
  // Of what is past the sequence's end nothing need be read.
  const int blocks = warp_row < tile.valid ? (p.head_dim + 15) / 16 : 0;
  const bool aligned = IsAligned(dq, g.dq.token_stride);
  const float factor = p.scale / DqPower(p.scale);  // exact
  for (int first = 0; first < p.head_dim;
       first += kStepColumns * kStepsTogether / 2) {
    float4 x[kStepsTogether][2];
#pragma unroll
    for (int step = 0; step < kStepsTogether; ++step) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int block = first / 16 + step / 2 * 2 + n;
        x[step][n] = block < blocks
                         ? LoadSums<kLayout>(sums, step % 2, block, g.dq_dim)
                         : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
    }
#pragma unroll
    for (int step = 0; step < kStepsTogether; ++step) {
      typename PairWord<Out>::Type words[4];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float4& sum = x[step][n];
        const auto scaled = [&](float s) {
          return sees[step % 2] ? s * factor : 0.0f;
        };
        words[2 * n] = MakePair<Out>(scaled(sum.x), scaled(sum.y));
        words[2 * n + 1] = MakePair<Out>(scaled(sum.z), scaled(sum.w));
      }
      Transpose(words);
      const int column = first + step / 2 * kStepColumns + 8 * quad;
      const int in_tile = warp_row + step % 2 * 8 + row;
      if (in_tile < end) {
        Store(words, dq + in_tile * g.dq.token_stride + column,
              p.head_dim - column, aligned);
      }
    }
  }
}

template <class Out>
__device__ void FinishRows(const RowTile& tile, const float* scratch) {
  const TensorView& view = tile.gradients->dq;
  Out* dq = static_cast<Out*>(view.data) + tile.b * view.batch_stride +
            tile.h * view.head_stride + tile.first_row * view.token_stride;
  switch (tile.gradients->dq_layout) {
    case DqLayout::kRows:
      return FinishRows<DqLayout::kRows>(tile, scratch, dq);
    case DqLayout::kLanes:
      return FinishRows<DqLayout::kLanes>(tile, scratch, dq);
    case DqLayout::kQuads:
      return FinishRows<DqLayout::kQuads>(tile, scratch, dq);
  }
}

__global__ void __launch_bounds__(kTileThreads, kTileBlocks)
    FinishDq(const __grid_constant__ LaunchParams params) {
  __shared__ RowTileDescription description;
  const RowTile tile = OpenRowTile(params, description);
  if (tile.gradients->dq.data == nullptr) return;
  switch (tile.gradients->dq.dtype) {
    case DType::kF32:
      return FinishRows<float>(tile, params.scratch);
    case DType::kF16:
      return FinishRows<__half>(tile, params.scratch);
    case DType::kBF16:
      return FinishRows<__nv_bfloat16>(tile, params.scratch);
  }
}

}  // namespace

const Kernel& FinishDqKernel() {
  static const Kernel kernel = {
      .name = "cuda/finish_dq",
      .function = reinterpret_cast<const void*>(&FinishDq),
      .rows = kTileRows,
      .threads = kTileThreads};
  return kernel;
}

}  // namespace attnd::cuda
