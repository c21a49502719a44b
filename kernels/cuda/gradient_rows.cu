#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/dq_sum.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/gradient.h"
#include "kernels/cuda/gradient_rows.h"
#include "kernels/cuda/open_tile.cuh"
#include "kernels/cuda/row.cuh"
#include "kernels/cuda/score.cuh"
#include "kernels/cuda/turns.cuh"

namespace attnd::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = static_cast<int>(kGradientRows);

// A tile: kRows rows of one head of one sequence.
struct RowTile {
  const DeviceProblem* problem;
  const DeviceGradients* gradients;
  Sequence sequence;
  int64_t b, h;
  int64_t first_row;
  int64_t q_len;  // of the sequence
  int64_t head;   // among the heads of all sequences

  // Where the tile's rows begin among padded rows of all heads.
  __device__ int64_t PaddedRow() const {
    return head * gradients->padded_rows + first_row;
  }
};

// For all threads of a block.
__device__ RowTile OpenRowTile(const LaunchParams& params,
                               TileDescription& description) {
  const std::byte* blob = BlobOf(params);
  const OpenTile open =
      FindTile<kThreads>(params, params.first_tile + blockIdx.x, description);
  const Quotient rows = Divide(open.index, open.row_blocks);
  const DeviceProblem& p = *open.problem;
  const Quotient head = Divide(rows.quotient, static_cast<uint32_t>(p.q_heads));
  return {&p,
          At<DeviceGradients>(blob, open.gradients),
          open.sequence(blob, head.quotient),
          head.quotient,
          head.remainder,
          int64_t{rows.remainder} * kRows,
          Of(blob, p.q_lens, head.quotient, p.q_len),
          rows.quotient};
}

// Eight elements of a row, or as many as `count`; the others are 0.
template <class T>
__device__ void LoadEight(const T* from, int count, bool aligned,
                          float (&to)[8]) {
  if (aligned && count >= 8) {
    alignas(16) T elements[8];
    constexpr int kWords = sizeof(elements) / 16;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      reinterpret_cast<uint4*>(elements)[i] =
          reinterpret_cast<const uint4*>(from)[i];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = ToFloat(elements[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = i < count ? ToFloat(from[i]) : 0.0f;
}

// A tensor's row of one head.
template <class T>
struct Rows {
  const T* data;
  int64_t stride;
  bool aligned;

  __device__ Rows(const ConstTensorView& t, int64_t b, int64_t h)
      : data(static_cast<const T*>(t.data) + b * t.batch_stride +
             h * t.head_stride),
        stride(t.token_stride),
        aligned(IsAligned(data, stride)) {}
};

// This lane's part of dO . O of a row: columns 8 lane, ..., and so on.
template <class T, class O>
__device__ float PartialDot(const Rows<T>& d_o, const Rows<O>& o, int64_t row,
                            int dim, int lane, int lanes) {
  float sum = 0.0f;
  for (int d = 8 * lane; d < dim; d += 8 * lanes) {
    float x[8], y[8];
    LoadEight(d_o.data + row * d_o.stride + d, dim - d, d_o.aligned, x);
    LoadEight(o.data + row * o.stride + d, dim - d, o.aligned, y);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(x[i], y[i], sum);
  }
  return sum;
}

// (E11) of the tile's rows, by groups of `lanes` lanes a row.
template <class T, class O>
__device__ void DotRows(const RowTile& tile, int valid, float* delta) {
  const DeviceProblem& p = *tile.problem;
  const DeviceGradients& g = *tile.gradients;
  const Rows<T> d_o(g.d_o, tile.b, tile.h);
  const Rows<O> o(g.o, tile.b, tile.h);
  int lanes = 1;  // that share a row: a power of two
  while (8 * lanes < p.value_dim) lanes *= 2;
  const int lane = threadIdx.x % lanes;
  for (int i = threadIdx.x / lanes; i < kRows; i += kThreads / lanes) {
    float sum = i < valid ? PartialDot(d_o, o, tile.first_row + i, p.value_dim,
                                       lane, lanes)
                          : 0.0f;
    for (int step = lanes / 2; step > 0; step /= 2) {
      sum += __shfl_xor_sync(0xffffffff, sum, step);
    }
    if (lane == 0) delta[i] = sum;
  }
}

// Says when it is whose turn to add to the tile's rows (turns.cuh).
__device__ void WriteTurnsUntil(const RowTile& tile, uint32_t* turns) {
  const DeviceGradients& g = *tile.gradients;
  const int segments = tile.problem->num_segments;
  const int blocks = kRows / g.turn_rows;
  for (int i = threadIdx.x; i < segments * blocks; i += kThreads) {
    const int segment = i / blocks;
    const int64_t first = tile.first_row + i % blocks * g.turn_rows;
    if (first >= tile.q_len) continue;
    const int64_t last = min(first + g.turn_rows, tile.q_len) - 1;
    turns[((tile.b * segments + segment) * g.padded_rows + first) / kTurnRows] =
        TurnsUntil(tile.sequence, segment, first, last, g.turn_cols);
  }
}

// What P is found from: in units of log2, as scores are, but of f32 inputs.
template <class T>
__device__ float KernelLse(float lse) {
  if (lse == -INFINITY) return INFINITY;  // so that P is 0
  if (sizeof(T) == 4) return lse;
  const float units = lse * kLog2e;
  // The largest score there is, which forward has brought from these units to
  // natural ones: a rounding away from what it was.
  constexpr float kLargest = 0x1.fffffp127f;
  return fabsf(units) > kLargest && !isinf(lse) ? copysignf(FLT_MAX, lse)
                                                : units;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    PrepareRows(const __grid_constant__ LaunchParams params) {
  __shared__ TileDescription description;
  __shared__ float dots[kRows];
  const RowTile tile = OpenRowTile(params, description);
  const DeviceGradients& g = *tile.gradients;
  const int valid = static_cast<int>(
      min(max(tile.q_len - tile.first_row, int64_t{0}), int64_t{kRows}));
  if (g.delta.data == nullptr) {
    if (sizeof(T) != 4 && g.o.dtype == DType::kF32) {
      DotRows<T, float>(tile, valid, dots);
    } else {
      DotRows<T, T>(tile, valid, dots);
    }
    __syncthreads();  // all rows' are there
  }
  for (int i = threadIdx.x; i < kRows; i += kThreads) {
    const int64_t row = tile.first_row + i;
    const auto of = [&](const ConstRowView& rows) {
      return rows
          .data[tile.b * rows.batch_stride + tile.h * rows.head_stride + row];
    };
    float lse = INFINITY, delta = 0.0f;
    if (i < valid) lse = KernelLse<T>(of(g.lse));
    if (lse != INFINITY) {
      delta = g.delta.data != nullptr ? of(g.delta) : dots[i];
      if (g.d_lse.data != nullptr) delta -= of(g.d_lse);
    }
    params.scratch[g.lse_at + tile.PaddedRow() + i] = lse;
    params.scratch[g.delta_at + tile.PaddedRow() + i] = delta;
  }
  auto* sums = reinterpret_cast<float4*>(params.scratch + g.dq_at +
                                         tile.PaddedRow() * g.dq_dim);
  for (int i = threadIdx.x; i < kRows * g.dq_dim / 4; i += kThreads) {
    sums[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  if (g.deterministic) {
    auto* turns = reinterpret_cast<uint32_t*>(params.scratch) + g.turns_at +
                  tile.PaddedRow() / kTurnRows;
    if (threadIdx.x < kRows / kTurnRows) turns[threadIdx.x] = 0;
    if (tile.h == 0) {
      WriteTurnsUntil(
          tile, reinterpret_cast<uint32_t*>(params.scratch) + g.turns_until_at);
    }
  }
}

// 16 columns of a row from its sums.
template <DqLayout kLayout>
__device__ void LoadSums(const float* sums, int64_t row, int column, int dim,
                         float (&x)[16]) {
  if constexpr (kLayout == DqLayout::kQuads) {
    const float4* from = reinterpret_cast<const float4*>(
        sums + DqPlace(kLayout, row, column, dim));
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float4 words = from[q];
      x[2 * q] = words.x, x[2 * q + 1] = words.y;
      x[8 + 2 * q] = words.z, x[8 + 2 * q + 1] = words.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      x[i] = sums[DqPlace(kLayout, row, column + i, dim)];
    }
  }
}

__device__ void LoadSums(DqLayout layout, const float* sums, int64_t row,
                         int column, int dim, float (&x)[16]) {
  switch (layout) {
    case DqLayout::kRows:
      return LoadSums<DqLayout::kRows>(sums, row, column, dim, x);
    case DqLayout::kLanes:
      return LoadSums<DqLayout::kLanes>(sums, row, column, dim, x);
    case DqLayout::kQuads:
      return LoadSums<DqLayout::kQuads>(sums, row, column, dim, x);
  }
}

// 16 elements, or as many as `count`.
template <class Out>
__device__ void Store(const float (&x)[16], Out* to, int count, bool aligned) {
  if (aligned && count >= 16) {
    alignas(16) Out elements[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) elements[i] = FromFloat<Out>(x[i]);
    constexpr int kWords = sizeof(elements) / 16;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      reinterpret_cast<uint4*>(to)[i] =
          reinterpret_cast<const uint4*>(elements)[i];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (i < count) to[i] = FromFloat<Out>(x[i]);
  }
}

template <class Out>
__device__ void FinishRows(const RowTile& tile, const float* scratch) {
  const DeviceProblem& p = *tile.problem;
  const DeviceGradients& g = *tile.gradients;
  const float* sums = scratch + g.dq_at + tile.head * g.padded_rows * g.dq_dim;
  const float* lse = scratch + g.lse_at + tile.head * g.padded_rows;
  Out* dq = static_cast<Out*>(g.dq.data) + tile.b * g.dq.batch_stride +
            tile.h * g.dq.head_stride;
  const bool aligned = IsAligned(dq, g.dq.token_stride);
  const int blocks = (p.head_dim + 15) / 16;
  const int end =
      static_cast<int>(min(p.q_len - tile.first_row, int64_t{kRows}));
  for (int i = threadIdx.x; i < kRows * blocks; i += kThreads) {
    // Neighbours have rows of one block, as the sums lie.
    const int in_block = i % 16, column = i / 16 % blocks * 16;
    const int r = i / 16 / blocks * 16 + in_block;
    if (r >= end) continue;
    const int64_t row = tile.first_row + r;
    float x[16] = {};
    if (lse[row] != INFINITY) {
      LoadSums(g.dq_layout, sums, row, column, g.dq_dim, x);
#pragma unroll
      for (int n = 0; n < 16; ++n) x[n] *= p.scale;
    }
    Store(x, dq + row * g.dq.token_stride + column, p.head_dim - column,
          aligned);
  }
}

__global__ void __launch_bounds__(kThreads)
    FinishDq(const __grid_constant__ LaunchParams params) {
  __shared__ TileDescription description;
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

Kernel MakeKernel(const char* name, const void* function) {
  return {
      .name = name, .function = function, .rows = kRows, .threads = kThreads};
}

}  // namespace

const Kernel& PrepareRowsKernel(DType dtype) {
  static const Kernel f32 =
      MakeKernel("cuda/prepare_rows_f32",
                 reinterpret_cast<const void*>(&PrepareRows<float>));
  static const Kernel f16 =
      MakeKernel("cuda/prepare_rows_f16",
                 reinterpret_cast<const void*>(&PrepareRows<__half>));
  static const Kernel bf16 =
      MakeKernel("cuda/prepare_rows_bf16",
                 reinterpret_cast<const void*>(&PrepareRows<__nv_bfloat16>));
  return dtype == DType::kF32 ? f32 : dtype == DType::kF16 ? f16 : bf16;
}

const Kernel& FinishDqKernel() {
  static const Kernel kernel =
      MakeKernel("cuda/finish_dq", reinterpret_cast<const void*>(&FinishDq));
  return kernel;
}

}  // namespace attnd::cuda
