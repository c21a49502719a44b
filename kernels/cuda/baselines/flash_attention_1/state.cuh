#ifndef ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_STATE_CUH_
#define ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_STATE_CUH_

// What Algorithm 1 keeps in memory for one sequence and q head, and how a block
// of columns changes it. Lines are those of the paper's Algorithm 1.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/baselines/baseline_score.cuh"
#include "kernels/cuda/baselines/flash_attention_1/launch.h"
#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/tile/element.cuh"

namespace attnd::cuda {

// The state of q_len rows, in device memory. At every block of columns the
// same thread updates an element of o, and needs no barrier for that. Several
// threads of a warp read a row's m and l, which one has written, after a
// barrier.
struct HeadState {
  float* m;          // [q_len]
  float* l;          // [q_len]
  float* o;          // [q_len, value_dim]; null: O is not wanted
  int64_t o_stride;  // floats from row to row of o

  __device__ float* Row(int64_t i) const { return o + i * o_stride; }
};

__device__ inline HeadState MakeHeadState(const DeviceProblem& p,
                                          const FlashAttention1State& state,
                                          int64_t b, int64_t h) {
  const int64_t row = (b * p.q_heads + h) * p.q_len;
  HeadState s{state.m + row, state.l + row, nullptr, 0};
  if (state.o != nullptr) {
    s.o = state.o + row * p.value_dim;
    s.o_stride = p.value_dim;
  } else if (p.o.data != nullptr) {
    s.o = static_cast<float*>(p.o.data) + b * p.o.batch_stride +
          h * p.o.head_stride;
    s.o_stride = p.o.token_stride;
  }
  return s;
}

// Calls each(i, d) for every element of O. For all threads of a block; a warp
// has a row at a time.
template <int kThreads, class Each>
__device__ void ForEachElement(const DeviceProblem& p, Each each) {
  for (int64_t i = threadIdx.x / 32; i < p.q_len; i += kThreads / 32)
    for (int d = threadIdx.x % 32; d < p.value_dim; d += 32) each(i, d);
}

// Line 2: sets O = 0, l = 0, m = -inf, for padding rows too.
template <int kThreads>
__device__ void Begin(const DeviceProblem& p, const HeadState& state) {
  for (int64_t i = threadIdx.x; i < p.q_len; i += kThreads) {
    state.m[i] = kMinusInfinity;
    state.l[i] = 0.0f;
  }
  if (state.o == nullptr) return;
  ForEachElement<kThreads>(p,
                           [&](int64_t i, int d) { state.Row(i)[d] = 0.0f; });
}

// Stores LSE, (E7), and O if its type is not f32, in which the state has it.
template <int kThreads>
__device__ void Finish(const DeviceProblem& p, const HeadState& state,
                       int64_t b, int64_t h) {
  if (p.lse.data != nullptr) {
    float* lse = p.lse.data + b * p.lse.batch_stride + h * p.lse.head_stride;
    for (int64_t i = threadIdx.x; i < p.q_len; i += kThreads)
      lse[i] = state.m[i] == kMinusInfinity ? kMinusInfinity
                                            : state.m[i] + logf(state.l[i]);
  }
  if (p.o.data == nullptr || p.o.dtype == DType::kF32) return;
  const int64_t base = b * p.o.batch_stride + h * p.o.head_stride;
  ForEachElement<kThreads>(p, [&](int64_t i, int d) {
    StoreAny(p.o.data, p.o.dtype, base + i * p.o.token_stride + d,
             state.Row(i)[d]);
  });
}

// (E10) for one row: O' = keep O + add P~ V, and the new m and l.
struct RowUpdate {
  float keep = 1.0f, add = 0.0f;
  float m = kMinusInfinity, l = 0.0f;
};
// The update by a block of columns. m and l are the row's so far, block_m and
// block_l are m~ and l~ of the block; block_m is not -inf.
__device__ inline RowUpdate Combine(float m, float l, float block_m,
                                    float block_l) {
  RowUpdate u;
  u.m = MaxOrNan(m, block_m);
  const float old_weight = l * expf(m - u.m);
  const float block_weight = expf(block_m - u.m);
  u.l = old_weight + block_weight * block_l;
  u.keep = old_weight / u.l;
  u.add = block_weight / u.l;
  return u;
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_FLASH_ATTENTION_1_STATE_CUH_
