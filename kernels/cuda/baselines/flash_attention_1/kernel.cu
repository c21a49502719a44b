#include <algorithm>

#include "kernels/cuda/baselines/flash_attention_1/fma_block.cuh"
#include "kernels/cuda/baselines/flash_attention_1/launch.h"
#include "kernels/cuda/baselines/flash_attention_1/mma_block.cuh"
#include "kernels/cuda/baselines/flash_attention_1/state.cuh"
#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda {
namespace {

// Where the tokens of sequence b and head h begin, from `token` on.
template <class T>
__device__ const T* Tokens(const ConstTensorView& tensor, int64_t b, int64_t h,
                           int64_t token) {
  return static_cast<const T*>(tensor.data) + b * tensor.batch_stride +
         h * tensor.head_stride + token * tensor.token_stride;
}

// Whether any of rows [i0, i1) may see any of columns [j0, j1).
__device__ bool Visible(const RowIntervals& intervals, int64_t i0, int64_t i1,
                        int64_t j0, int64_t j1) {
  const Interval seen = intervals.Rows(i0, i1 - 1);
  return max(seen.lo, j0) < min(seen.hi, j1);
}

// Computes one sequence and q head, for all threads of a block. `Block`
// computes a pair of blocks of rows and columns: FmaBlock or MmaBlock.
template <class Block>
class Head {
  using T = typename Block::Element;

 public:
  __device__ Head(const Sequence& sequence, int64_t h, const HeadState& state,
                  Block& block)
      : sequence_(sequence),
        p_(*sequence.problem),
        h_(h),
        state_(state),
        scores_(p_, sequence.b, h),
        block_(block) {}

  // Line 5: visits K/V blocks, segment by segment.
  __device__ void VisitColumns() {
    if (sequence_.q_len == 0) return;
    for (int n = 0; n < p_.num_segments; ++n) {
      const RowIntervals intervals = sequence_.Intervals(n);
      const int64_t columns = intervals.columns;
      for (int64_t j0 = 0; j0 < columns; j0 += Block::kColumns) {
        const int64_t j1 = min(j0 + Block::kColumns, columns);
        if (!Visible(intervals, 0, intervals.rows, j0, j1)) continue;
        VisitRows(sequence_.segment(n), intervals, j0, j1);
      }
    }
  }

 private:
  // Lines 6-14: loads K and V of columns [j0, j1), and visits all blocks of
  // rows with them.
  __device__ void VisitRows(const DeviceSegment& segment,
                            const RowIntervals& intervals, int64_t j0,
                            int64_t j1) {
    const int64_t kv_head = h_ / p_.group;
    const int columns = static_cast<int>(j1 - j0);
    // All threads have finished with the K and V before. Where no block of rows
    // saw those, as between rows whose positions leap, their loads are still
    // under way, and would race with those that follow.
    block_.AwaitLoads();
    __syncthreads();
    block_.LoadK(Tokens<T>(segment.k, sequence_.b, kv_head, j0),
                 segment.k.token_stride, columns);
    block_.LoadV(Tokens<T>(segment.v, sequence_.b, kv_head, j0),
                 segment.v.token_stride, columns);
    for (int64_t i0 = 0; i0 < intervals.rows; i0 += Block::kRows) {
      const int64_t i1 = min(i0 + Block::kRows, intervals.rows);
      if (!Visible(intervals, i0, i1, j0, j1)) continue;
      block_.LoadQ(Tokens<T>(p_.q, sequence_.b, h_, i0), p_.q.token_stride,
                   static_cast<int>(i1 - i0));
      block_.AwaitLoads();
      __syncthreads();  // all threads' loads of Q, K and V have arrived
      block_.Update(state_, scores_, intervals, segment.bias_column, i0, j0);
      __syncthreads();  // all threads have read them
    }
  }

  const Sequence& sequence_;
  const DeviceProblem& p_;
  const int64_t h_;
  const HeadState& state_;
  const Scores scores_;
  Block& block_;
};

// Algorithm 1. A block of threads has one sequence and q head at a time, and
// goes on with the one gridDim.x further on. `all` is the state of all of them.
template <class Block>
__global__ void __launch_bounds__(Block::kThreads)
    FlashAttention1(const __grid_constant__ LaunchParams params,
                    const FlashAttention1State all) {
  extern __shared__ __align__(16) std::byte shared[];
  const std::byte* blob = BlobOf(params);
  const DeviceProblem& p = *At<DeviceProblem>(blob, all.problem);
  Block block(shared, p.head_dim, p.value_dim);
  for (int64_t n = blockIdx.x; n < p.batch * p.q_heads; n += gridDim.x) {
    const int64_t b = n / p.q_heads, h = n % p.q_heads;
    const Sequence sequence = MakeSequence(blob, p, b);
    const HeadState state = MakeHeadState(p, all, b, h);
    Begin<Block::kThreads>(p, state);
    __syncthreads();  // all threads have written the state
    Head<Block>(sequence, h, state, block).VisitColumns();
    __syncthreads();  // all threads have updated the state
    Finish<Block::kThreads>(p, state, b, h);
  }
}

template <class Block>
cudaError_t Launch(const LaunchParams& params,
                   const FlashAttention1State& state, const Problem& p,
                   cudaStream_t stream) {
  static_assert(Block::SharedBytes(kMaxHeadDim, kMaxHeadDim) <= 99 << 10,
                "what every GPU since 8.0 has");
  const int shared = Block::SharedBytes(static_cast<int>(p.head_dim),
                                        static_cast<int>(p.value_dim));
  // The limit is that of the largest dims, whatever this launch needs: another
  // thread may be about to launch the same kernel with other dims.
  const cudaError_t error = cudaFuncSetAttribute(
      FlashAttention1<Block>, cudaFuncAttributeMaxDynamicSharedMemorySize,
      Block::SharedBytes(kMaxHeadDim, kMaxHeadDim));
  if (error != cudaSuccess) return error;
  const unsigned blocks = static_cast<unsigned>(
      std::min<int64_t>(p.batch * p.q_heads, int64_t{1} << 30));
  FlashAttention1<Block>
      <<<blocks, Block::kThreads, shared, stream>>>(params, state);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchFlashAttention1(const LaunchParams& params,
                                  const FlashAttention1State& state,
                                  const Problem& p, cudaStream_t stream) {
  switch (p.dtype()) {
    case DType::kF32:
      return Launch<FmaBlock>(params, state, p, stream);
    case DType::kF16:
      return Launch<MmaBlock<__half>>(params, state, p, stream);
    case DType::kBF16:
      return Launch<MmaBlock<__nv_bfloat16>>(params, state, p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnd::cuda
