#ifndef ATTND_KERNELS_CUDA_SM80_PARTIALS_CUH_
#define ATTND_KERNELS_CUDA_SM80_PARTIALS_CUH_

// Merging the states of warps, and of blocks of threads, that have seen
// different columns of the same rows: (E19) and (E20) in kernels/README.md, for
// sums that are not divided yet. A state is (m, l, a): the largest score in
// units of log2, the sum of 2^(score - m), and that of 2^(score - m) V.

#include <cstdint>

#include "kernels/cuda/descriptor.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/open_tile.cuh"
#include "kernels/cuda/sm80/config.h"
#include "kernels/cuda/sm80/epilogue.cuh"
#include "kernels/cuda/sm80/partials.h"
#include "kernels/cuda/sm80/softmax.cuh"

namespace attnd::cuda::sm80 {

// What the warps of a block have of its rows, but for a.
template <int kWarps>
struct WarpStates {
  float m[kWarps][kDecodeTile], l[kWarps][kDecodeTile];
  bool last;  // whether this block is the last of its row's parts
};

// Floats from one row of a to the next, which spreads them over the banks.
constexpr int StateStride(int dim) { return dim + 8; }

// How much a state counts whose largest score is `m`, where the largest of all
// is `most`. Of empty ones nothing.
__device__ inline float Weight(float m, float most) {
  return ptx::Exp2(m - (most == -INFINITY ? 0.0f : most));
}

// Writes a warp's state; `a` is [kDecodeTile, StateStride(kDim)].
template <int kDim, int kWarps>
__device__ void PutWarpState(const OnlineSoftmax<1>& softmax, float factor,
                             const float (&o)[1][kDim / 8][4], int warp,
                             int lane, float* a, WarpStates<kWarps>& states) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r;
    const float l = QuadSum(softmax.l[0][r]);
    if (lane % 4 == 0) {
      const float m = softmax.m[0][r];
      states.m[warp][row] = m == -INFINITY ? m : m * factor;
      states.l[warp][row] = l;
    }
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      float* to = a + row * StateStride(kDim) + 8 * d + 2 * (lane % 4);
      to[0] = o[0][d][2 * r];
      to[1] = o[0][d][2 * r + 1];
    }
  }
}

// The partial results of a tile's rows in the launch's scratch: for each row
// and part a record of m, l and a.
class Partials {
 public:
  // Of a launch's records from `first` on; `stride` of them for each row.
  __device__ Partials(const LaunchParams& params, int64_t first, int stride,
                      int64_t counter, int dim)
      : stride_(stride),
        floats_(RecordFloats(dim)),
        records_(params.scratch + first * floats_),
        counter_(params.counters + counter) {}

  __device__ float* Record(int row, int part) const {
    return records_ + (static_cast<int64_t>(row) * stride_ + part) * floats_;
  }
  // Whether all other parts have been here: then what they had written before
  // can be read. The counter is 0 again. For one thread, after a barrier of the
  // block.
  __device__ bool IsLast(int parts) const {
    return ptx::AtomicIncrement(counter_, parts - 1) == parts - 1;
  }

 private:
  const int stride_, floats_;
  float* const records_;
  uint32_t* const counter_;
};

// Stores a row of O and LSE from a state whose a is spread over a warp: lane t
// has columns t, t + 32, ...
template <int kDim, class Tile>
__device__ void StoreRow(const Tile& tile, int r, float m, float l,
                         const float (&a)[kDim / 32], int lane) {
  const Sequence& sequence = tile.block.sequence;
  const DeviceProblem& p = *sequence.problem;
  const int64_t row = tile.Row(r), head = tile.Head(r);
  const bool empty = l == 0.0f;
  if (p.lse.data != nullptr && lane == 0) {
    StoreLse(p, sequence.b, head, row, LogSumExp(m, l));
  }
  if (p.o.data == nullptr) return;
  const int64_t at = sequence.b * p.o.batch_stride + head * p.o.head_stride +
                     row * p.o.token_stride;
  const float weight = 1.0f / l;
#pragma unroll
  for (int i = 0; i < kDim / 32; ++i) {
    const int d = lane + 32 * i;
    if (d < p.value_dim) {
      StoreAny(p.o.data, p.o.dtype, at + d, empty ? 0.0f : a[i] * weight);
    }
  }
}

// Merges the warps' states of row r.
template <int kDim, int kWarps>
__device__ void MergeWarps(const WarpStates<kWarps>& states,
                           const std::byte* memory, int bytes_of_a_warp, int r,
                           int lane, float& m, float& l,
                           float (&a)[kDim / 32]) {
  m = -INFINITY;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) m = fmaxf(m, states.m[w][r]);
  l = 0.0f;
#pragma unroll
  for (int i = 0; i < kDim / 32; ++i) a[i] = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float weight = Weight(states.m[w][r], m);
    const auto* of =
        reinterpret_cast<const float*>(memory + w * bytes_of_a_warp) +
        r * StateStride(kDim) + lane;
    l = fmaf(weight, states.l[w][r], l);
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      a[i] = fmaf(weight, of[32 * i], a[i]);
    }
  }
}

// Merges the parts of row r, one after another. The weights are found by 32
// lanes for 32 parts; what is to be weighed is loaded well ahead.
template <int kDim>
__device__ void MergeParts(const Partials& partials, int parts, int r, int lane,
                           float& m, float& l, float (&a)[kDim / 32]) {
  // Of part `lane`: with few parts, nothing else is waited for.
  float part_m = -INFINITY, part_l = 0.0f;
  if (lane < parts) {
    part_m = __ldcg(partials.Record(r, lane));
    part_l = __ldcg(partials.Record(r, lane) + 1);
  }
  m = part_m;
  for (int s = lane + 32; s < parts; s += 32) {
    m = fmaxf(m, __ldcg(partials.Record(r, s)));
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, step));
  }
  l = 0.0f;
#pragma unroll
  for (int i = 0; i < kDim / 32; ++i) a[i] = 0.0f;
  for (int first = 0; first < parts; first += 32) {
    const int count = min(parts - first, 32);
    if (first > 0 && lane < count) {
      part_m = __ldcg(partials.Record(r, first + lane));
      part_l = __ldcg(partials.Record(r, first + lane) + 1);
    }
    const float weight = lane < count ? Weight(part_m, m) : 0.0f;
#pragma unroll 16
    for (int s = 0; s < count; ++s) {
      const float* record = partials.Record(r, first + s) + kRecordA + lane;
      const float w = __shfl_sync(0xffffffff, weight, s);
      l = fmaf(w, __shfl_sync(0xffffffff, part_l, s), l);
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i) {
        a[i] = fmaf(w, __ldcg(record + 32 * i), a[i]);
      }
    }
  }
}

// Merges what the warps of a block have, each at `memory` + bytes_of_a_warp
// times its number, with what the blocks of the other parts have.
template <class Config, class Tile, int kWarps>
__device__ void MergeAndStore(const Tile& tile, const std::byte* memory,
                              int bytes_of_a_warp, WarpStates<kWarps>& states,
                              const LaunchParams& params) {
  constexpr int kDim = Config::kDim;
  const Partials partials(params, tile.first_record, tile.record_stride,
                          tile.counter, kDim);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float m, l, a[kDim / 32];
  for (int r = warp; r < tile.stored; r += kWarps) {
    MergeWarps<kDim>(states, memory, bytes_of_a_warp, r, lane, m, l, a);
    if (tile.parts == 1) {
      // Padding has been computed, but of no queries.
      StoreRow<kDim>(tile, r, m, r < tile.valid ? l : 0.0f, a, lane);
    } else if (r < tile.valid) {
      float* record = partials.Record(r, tile.part);
      if (lane == 0) record[0] = m;
      if (lane == 1) record[1] = l;
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i)
        record[kRecordA + lane + 32 * i] = a[i];
    }
  }
  if (tile.parts == 1) return;
  __syncthreads();  // the block's records are written
  if (threadIdx.x == 0) states.last = partials.IsLast(tile.parts);
  __syncthreads();  // all know who is last
  if (!states.last) return;
  for (int r = warp; r < tile.stored; r += kWarps) {
    m = -INFINITY;
    l = 0.0f;
    if (r < tile.valid) {
      MergeParts<kDim>(partials, tile.parts, r, lane, m, l, a);
    }
    StoreRow<kDim>(tile, r, m, l, a, lane);
  }
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_PARTIALS_CUH_
