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

// A warp has 16 rows, as a 16 x 16 block of the sums does. Lane 4 r + q has row
// r of either half, rows 0-7 and rows 8-15. A step is 32 columns of one half:
// each lane reads four sums of each of two blocks, and the four lanes of a row
// exchange them until each has eight neighbouring columns to store.
constexpr int kWarpRows = 16;
constexpr int kStepColumns = 32;
// So many steps load at once: 128 bytes for each lane.
constexpr int kStepsTogether = 4;
static_assert(kTileThreads / 32 * kWarpRows == kTileRows);

// The sums that lane 4 r + q reads of row 8 half + r: columns 2 q, 2 q + 1,
// 2 q + 8 and 2 q + 9 of the block'th 16 columns. `first` is where its sum of
// half 0 and block 0 is; rows of sums have `dim` columns. Nobody reads them
// again, so they are loaded as streaming data.
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

// Pairs of lanes `distance` apart exchange words: the upper lane gives its
// `low` for the lower lane's `high`. For all lanes of a warp.
template <class Word>
__device__ void Exchange(bool upper, int distance, Word& low, Word& high) {
  const Word got = __shfl_xor_sync(0xffffffff, upper ? low : high, distance);
  (upper ? low : high) = got;
}

// Transposes the words of each four lanes: word n of lane q becomes word q of
// lane n. For all lanes of a warp.
template <class Word>
__device__ void Transpose(Word (&words)[4]) {
  const bool odd = threadIdx.x % 2 != 0, second = threadIdx.x % 4 >= 2;
  Exchange(odd, 1, words[0], words[1]);
  Exchange(odd, 1, words[2], words[3]);
  Exchange(second, 2, words[0], words[2]);
  Exchange(second, 2, words[1], words[3]);
}

// A word as large as two elements of Out.
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

// Stores eight neighbouring elements of a row, or the first `count` if those
// are fewer. `aligned` says that `to` is aligned to 16 bytes.
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

// Adds a row of `dim` elements to the sums that LoadSums gives a lane, the
// first of which is of column `first`.
__device__ void AddBefore(const float* row, int first, int dim, float4& sum) {
  if (first < dim) sum.x += row[first];
  if (first + 1 < dim) sum.y += row[first + 1];
  if (first + 8 < dim) sum.z += row[first + 8];
  if (first + 9 < dim) sum.w += row[first + 9];
}

// (E17), scaled, added to what was there before and rounded: stores dQ of a
// warp's rows. `dq` is where row 0 of
// the tile goes, `scratch` the launch's.
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
  // Rows past the sequence's end become 0 without any sum being read.
  const int blocks = warp_row < tile.valid ? (p.head_dim + 15) / 16 : 0;
  const bool aligned = IsAligned(dq, g.dq.token_stride);
  const float* before = nullptr;  // row 0 of the tile
  if (const ConstTensorView& view = g.dq_before; view.data != nullptr) {
    before = static_cast<const float*>(view.data) + tile.b * view.batch_stride +
             tile.h * view.head_stride + tile.first_row * view.token_stride;
  }
  // The part of the scale that the sums lack; the division is exact.
  const float factor = p.scale / DqPower(p.scale);
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
      const int in_tile = warp_row + step % 2 * 8 + row;
      const int first_of_step = first + step / 2 * kStepColumns;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float4& sum = x[step][n];
        const auto scaled = [&](float s) {
          return sees[step % 2] ? s * factor : 0.0f;
        };
        sum = make_float4(scaled(sum.x), scaled(sum.y), scaled(sum.z),
                          scaled(sum.w));
        if (before != nullptr && in_tile < end) {
          AddBefore(before + in_tile * g.dq_before.token_stride,
                    first_of_step + 16 * n + 2 * quad, p.head_dim, sum);
        }
        words[2 * n] = MakePair<Out>(sum.x, sum.y);
        words[2 * n + 1] = MakePair<Out>(sum.z, sum.w);
      }
      // Until here a step's elements are read, and after this they are stored,
      // so that `before` may be dQ's own memory.
      Transpose(words);
      const int column = first_of_step + 8 * quad;
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

// A block of threads for each tile of kTileRows rows of a head.
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
