#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch/gradient.h"
#include "kernels/cuda/rows/gradient_rows.h"
#include "kernels/cuda/rows/row_tile.cuh"
#include "kernels/cuda/tile/element.cuh"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/row.cuh"
#include "kernels/cuda/tile/score.cuh"
#include "kernels/cuda/tile/turns.cuh"

namespace attnd::cuda {
namespace {

// The rows of one head of a tensor, from a tile's first row on.
template <class T>
struct Rows {
  const T* data;
  int64_t stride;  // elements from row to row
  bool aligned;    // whether rows are aligned to 16 bytes

  __device__ Rows(const ConstTensorView& t, const RowTile& tile)
      : data(static_cast<const T*>(t.data) + tile.b * t.batch_stride +
             tile.h * t.head_stride + tile.first_row * t.token_stride),
        stride(t.token_stride),
        aligned(IsAligned(data, stride)) {}
};

// This thread's part of the tile's sums of dQ, [kTileRows, dq_dim], to which it
// writes zeros piece by piece while it waits for other memory.
class SumsToClear {
 public:
  __device__ SumsToClear(const RowTile& tile, float* scratch)
      : next_(reinterpret_cast<float4*>(scratch + tile.gradients->dq_at +
                                        tile.PaddedRow() *
                                            tile.gradients->dq_dim) +
              threadIdx.x),
        left_(kTileRows / 4 * tile.gradients->dq_dim / kTileThreads) {}

  // Clears eight more words of 16 bytes. This is code without a loop, as ptxas
  // would move what waits for loads in flight ahead of a loop.
  __device__ void ClearSome() {
    constexpr int kSome = 8;
#pragma unroll
    for (int i = 0; i < kSome; ++i) {
      if (i < left_) {
        next_[i * kTileThreads] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
    }
    next_ += kSome * kTileThreads;
    left_ -= kSome;
  }
  __device__ void ClearRest() {
    while (left_ > 0) ClearSome();
  }

 private:
  static_assert(kTileRows * 16 % (4 * kTileThreads) == 0);
  float4* next_;
  int left_;
};

// How many words of 16 bytes each thread copies at once.
constexpr int kWordsTogether = 8;

// A block's shared memory.
struct SharedRows {
  // words[...][t] are copied and read by thread t alone.
  uint4 words[kWordsTogether][kTileThreads];
  RowTileDescription description;  // written by all threads, in OpenRowTile
  // dO . O of each row, written by the first of the lanes that share the row
  // and read by the thread that has the row, after a barrier.
  float dots[kTileRows];
};
// Bytes from one word of a thread to its next.
constexpr int kWordStep = sizeof(SharedRows::words[0]);

// Eight neighbouring elements of a row.
template <class T>
struct Eight {
  static constexpr int kWords = 8 * sizeof(T) / 16;
  alignas(16) T elements[8];

  __device__ uint4* words() { return reinterpret_cast<uint4*>(elements); }
};

// Eight elements while they are loaded: Begin asks for the first `count`, End
// gives them, the others being 0. CopiedEight takes elements of aligned rows,
// all eight or none, through shared memory: were they loaded to registers,
// ptxas would have them wait for the first before it asked for the last.
// LoadedEight takes all others, to registers.
template <class T>
struct CopiedEight {
  uint32_t at;

  __device__ void Begin(uint32_t words_at, const T* from, int count, bool) {
    at = words_at;
#pragma unroll
    for (int i = 0; i < Eight<T>::kWords; ++i) {
      ptx::CpAsync16(at + i * kWordStep,
                     reinterpret_cast<const uint4*>(from) + i,
                     count > 0 ? 16 : 0);
    }
  }
  __device__ Eight<T> End() const {
    Eight<T> x;
#pragma unroll
    for (int i = 0; i < Eight<T>::kWords; ++i) {
      x.words()[i] = ptx::LoadShared16(at + i * kWordStep);
    }
    return x;
  }
};
template <class T>
struct LoadedEight {
  Eight<T> x;

  __device__ void Begin(uint32_t, const T* from, int count, bool aligned) {
    if (aligned && count >= 8) {
#pragma unroll
      for (int i = 0; i < Eight<T>::kWords; ++i) {
        x.words()[i] = reinterpret_cast<const uint4*>(from)[i];
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x.elements[i] = i < count ? from[i] : FromFloat<T>(0.0f);
    }
  }
  __device__ Eight<T> End() const { return x; }
};

template <class T, class O>
__device__ float Dot(const Eight<T>& x, const Eight<O>& y) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sum = fmaf(ToFloat(x.elements[i]), ToFloat(y.elements[i]), sum);
  }
  return sum;
}

// (E11) of the tile's rows: dots[row] = dO . O, 0 from row `valid` on. A power
// of two lanes share a row, eight columns each. Clears `sums` while it waits
// for rows. `words_at` is the address of the thread's words in shared memory.
template <bool kWhole, class T, class O>
__device__ void DotRows(const Rows<T>& d_o, const Rows<O>& o, int dim,
                        int valid, uint32_t words_at, float* dots,
                        SumsToClear& sums) {
  constexpr int kWords = Eight<T>::kWords, kBoth = kWords + Eight<O>::kWords;
  // How many rows each thread loads at once.
  constexpr int kTogether = kWhole ? kWordsTogether / kBoth : 1;
  const int lanes_log2 = dim <= 8 ? 0 : 32 - __clz((dim - 1) / 8);
  const int lanes = 1 << lanes_log2;
  const int column = 8 * (static_cast<int>(threadIdx.x) & (lanes - 1));
  const int step = kTileThreads >> lanes_log2;
  int row = static_cast<int>(threadIdx.x) >> lanes_log2;
  const T* x_from = d_o.data + row * d_o.stride + column;
  const O* y_from = o.data + row * o.stride + column;
  const int64_t x_step = step * d_o.stride, y_step = step * o.stride;
  while (row < kTileRows) {
    std::conditional_t<kWhole, CopiedEight<T>, LoadedEight<T>> x[kTogether];
    std::conditional_t<kWhole, CopiedEight<O>, LoadedEight<O>> y[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const int count = row + k * step < valid ? dim - column : 0;
      const uint32_t at = words_at + k * kBoth * kWordStep;
      x[k].Begin(at, x_from, count, d_o.aligned);
      y[k].Begin(at + kWords * kWordStep, y_from, count, o.aligned);
      x_from += x_step;
      y_from += y_step;
    }
    ptx::CpAsyncCommit();
    sums.ClearSome();
    ptx::CpAsyncWait<0>();  // this thread's words, which only it reads
    float dot[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) dot[k] = Dot(x[k].End(), y[k].End());
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        dot[k] += __shfl_xor_sync(0xffffffff, dot[k], distance);
      }
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (column == 0 && row < kTileRows) dots[row] = dot[k];
      row += step;
    }
  }
}

// The same for dO of type T and O of type O, however they lie in memory.
template <class T, class O>
__device__ void DotRows(const RowTile& tile, SharedRows& shared,
                        SumsToClear& sums) {
  const Rows<T> d_o(tile.gradients->d_o, tile);
  const Rows<O> o(tile.gradients->o, tile);
  const int dim = tile.problem->value_dim;
  const uint32_t words_at = ptx::SharedAddress(&shared.words[0][threadIdx.x]);
  if (d_o.aligned && o.aligned && dim % 8 == 0) {
    DotRows<true>(d_o, o, dim, tile.valid, words_at, shared.dots, sums);
  } else {
    DotRows<false>(d_o, o, dim, tile.valid, words_at, shared.dots, sums);
  }
}

// Writes TurnsUntil and TurnsBefore (turns.cuh) of the tile's rows for each
// segment: `turns` is [2, batch, num_segments, padded_rows / kTurnRows].
__device__ void WriteTurns(const RowTile& tile, const std::byte* blob,
                           uint32_t* turns) {
  const DeviceGradients& g = *tile.gradients;
  const Sequence sequence =
      MakeSequence(blob, *tile.problem, tile.segments, tile.b);
  const int segments = tile.problem->num_segments;
  const int blocks = kTileRows / g.turn_rows;
  for (int i = threadIdx.x; i < segments * blocks; i += kTileThreads) {
    const int segment = i / blocks;
    const int64_t first = tile.first_row + i % blocks * g.turn_rows;
    if (first >= sequence.q_len) continue;
    const int64_t last = min(first + g.turn_rows, sequence.q_len) - 1;
    const int64_t at =
        ((int64_t{tile.b} * segments + segment) * g.padded_rows + first) /
        kTurnRows;
    turns[at] = TurnsUntil(sequence, segment, first, last, g.turn_cols);
    turns[TurnWords(*tile.problem, g) + at] =
        TurnsBefore(sequence, segment, first, last, g.turn_cols);
  }
}

// Sets up turns at the tile's rows: no turn has ended yet. What is the same for
// all heads, head 0 writes.
__device__ void BeginTurns(const RowTile& tile, const LaunchParams& params) {
  const DeviceGradients& g = *tile.gradients;
  auto* words = reinterpret_cast<uint32_t*>(params.scratch);
  if (threadIdx.x < kTileRows / kTurnRows) {
    words[g.turns_at + tile.PaddedRow() / kTurnRows + threadIdx.x] = 0;
  }
  if (tile.h == 0) {
    WriteTurns(tile, BlobOf(params), words + g.turn_offsets_at);
  }
}

// The LSE from which the main kernel finds P: in units of log2, as its scores
// are, except for f32 inputs. An LSE that is the mark kHugeLse by chance
// becomes 0, its neighbour.
template <class T>
__device__ float KernelLse(float lse, bool huge) {
  if (sizeof(T) == 4 || lse == INFINITY) return lse;
  if (huge) return kHugeLse;
  const float units = lse * kLog2e;
  return units == kHugeLse ? 0.0f : units;
}

// The value that the caller gives for the tile's row `row`, of LSE, delta or
// the gradient of LSE.
__device__ float Given(const RowTile& tile, const ConstRowView& rows, int row) {
  return rows.data[tile.b * rows.batch_stride + tile.h * rows.head_stride +
                   tile.first_row + row];
}

// Blocks for which a multiprocessor's registers must suffice; f32 takes more.
template <class T>
constexpr int Blocks() {
  return sizeof(T) == 4 ? kTileBlocks - 1 : kTileBlocks;
}

// For inputs of type T: a block of threads for each tile of kTileRows rows of a
// head.
template <class T>
__global__ void __launch_bounds__(kTileThreads, Blocks<T>())
    PrepareRows(const __grid_constant__ LaunchParams params) {
  ATTND_DYNAMIC_SHARED(memory);
  auto& shared = *reinterpret_cast<SharedRows*>(memory);
  const RowTile tile = OpenRowTile(params, shared.description);
  const DeviceGradients& g = *tile.gradients;
  // Each thread has one row, or none. It asks for the row's LSE first, so that
  // this comes while it waits for other rows below.
  static_assert(kTileRows <= kTileThreads);
  const int row = threadIdx.x;
  const float given_lse =
      row < tile.valid ? Given(tile, g.lse, row) : -INFINITY;
  if (g.deterministic) BeginTurns(tile, params);
  SumsToClear sums(tile, params.scratch);
  if (g.delta.data == nullptr) {
    if (sizeof(T) != 4 && g.o.dtype == DType::kF32) {
      DotRows<T, float>(tile, shared, sums);
    } else {
      DotRows<T, T>(tile, shared, sums);
    }
    __syncthreads();  // shared.dots of all rows is written
  }
  sums.ClearRest();
  // Rows without P have an LSE of +inf, which makes their P 0.
  const float natural_lse = given_lse == -INFINITY ? INFINITY : given_lse;
  // If one row's LSE is huge, all rows of the tile take the slow path.
  const bool huge = __syncthreads_or(IsHuge(natural_lse));
  if (threadIdx.x == 0) {
    reinterpret_cast<uint32_t*>(
        params.scratch)[g.huge_at + tile.PaddedRow() / kTileRows] = huge;
  }
  if (row < kTileRows) {
    float delta = 0.0f;
    if (natural_lse != INFINITY) {
      delta = g.delta.data != nullptr ? Given(tile, g.delta, row)
                                      : shared.dots[row];
      if (g.d_lse.data != nullptr) delta -= Given(tile, g.d_lse, row);
    }
    const int64_t at = tile.PaddedRow() + row;
    params.scratch[g.lse_at + at] = KernelLse<T>(natural_lse, huge);
    params.scratch[g.delta_at + at] = delta;
    if (sizeof(T) != 4 &&
        (huge || !MakeScoreRule(*tile.problem, tile.b, tile.h).plain())) {
      params.scratch[g.natural_lse_at + at] = natural_lse;
    }
  }
}

template <class T>
Kernel MakeKernel(const char* name) {
  return {.name = name,
          .function = reinterpret_cast<const void*>(&PrepareRows<T>),
          .rows = kTileRows,
          .threads = kTileThreads,
          .shared_bytes = sizeof(SharedRows)};
}

}  // namespace

const Kernel& PrepareRowsKernel(DType dtype) {
  static const Kernel f32 = MakeKernel<float>("cuda/prepare_rows_f32");
  static const Kernel f16 = MakeKernel<__half>("cuda/prepare_rows_f16");
  static const Kernel bf16 =
      MakeKernel<__nv_bfloat16>("cuda/prepare_rows_bf16");
  return dtype == DType::kF32 ? f32 : dtype == DType::kF16 ? f16 : bf16;
}

}  // namespace attnd::cuda
