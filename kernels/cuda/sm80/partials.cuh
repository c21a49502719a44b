#ifndef ATTND_KERNELS_CUDA_SM80_PARTIALS_CUH_
#define ATTND_KERNELS_CUDA_SM80_PARTIALS_CUH_

// Merging the states of warps, and of blocks of threads, that have seen
// different columns of the same rows: (E19) and (E20) in kernels/README.md, for
// sums that are not divided yet. A state is (m, l, a): the largest score, the
// sum of exp(score - m), and the sum of exp(score - m) v. m is in natural
// units, so that where one score is all that counts in a row, the row's LSE has
// the bits that backward finds for that score.

#include <cstdint>

#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/sm80/config.h"
#include "kernels/cuda/sm80/decode_tile.cuh"
#include "kernels/cuda/sm80/partials.h"
#include "kernels/cuda/sm80/softmax.cuh"
#include "kernels/cuda/tile/element.cuh"
#include "kernels/cuda/tile/open_tile.cuh"
#include "kernels/cuda/tile/ptx.cuh"
#include "kernels/cuda/tile/row.cuh"
#include "kernels/cuda/tile/row_before.cuh"
#include "kernels/cuda/tile/score.cuh"
#include "kernels/cuda/tile/stagger.cuh"

namespace attnd::cuda::sm80 {

// The states of a block's warps without their a, in shared memory: each warp
// writes its own, all warps read them after a barrier.
template <int kWarps>
struct WarpStates {
  float m[kWarps][kDecodeTile], l[kWarps][kDecodeTile];
  // l and a are still to be multiplied by 2 to this power.
  float shift[kWarps][kDecodeTile];
  bool alone[kWarps];  // whether the warp found all other parts done
  bool last;  // whether this block's part is the last; written by thread 0
};

// Floats from one row of a warp's a to the next in shared memory: padded, so
// that rows begin in different banks.
constexpr int StateStride(int dim) { return dim + 8; }

// The weight of a state whose largest score is `m`, where the largest of all
// states is `most`: 2^shift exp(m - most). It is 0 for an empty state.
__device__ inline float Weight(float m, float most, float shift = 0.0f) {
  return ptx::Exp2(fmaf(m - (most == -INFINITY ? 0.0f : most), kLog2e, shift));
}

// Writes a warp's state of at least `rows` rows, for MergeWarps: m, l and shift
// to `states`, a to `a`, f32 [kDecodeTile, StateStride(kDim)] in shared memory.
// `scale` brings scores to natural units, as c brings them to units of log2.
template <int kDim, int kWarps>
__device__ void PutWarpState(const OnlineSoftmax<1>& softmax, float scale,
                             float c, const float (&o)[1][kDim / 8][4],
                             int rows, int warp, int lane, float* a,
                             WarpStates<kWarps>& states) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (8 * r >= rows) break;
    const int row = lane / 4 + 8 * r;
    const float l = QuadSum(softmax.l[0][r]);
    if (lane % 4 == 0) {
      const float m = softmax.m[0][r];
      const bool empty = m == -INFINITY;
      states.m[warp][row] = empty ? m : __fmul_rn(m, scale);
      states.l[warp][row] = l;
      states.shift[warp][row] = empty ? 0.0f : -LostOfBase(m, c);
    }
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      float* to = a + row * StateStride(kDim) + 8 * d + 2 * (lane % 4);
      to[0] = o[0][d][2 * r];
      to[1] = o[0][d][2 * r + 1];
    }
  }
}

// A row of a, or of O, spread over a warp: each lane has kDim / 32 columns, in
// vectors of kVector neighbours that are loaded and stored at once.
template <int kDim>
struct RowOfLane {
  static constexpr int kVector = kDim % 128 == 0 ? 4 : kDim % 64 == 0 ? 2 : 1;
  static constexpr int kVectors = kDim / 32 / kVector;
  template <class T>
  struct alignas(sizeof(T) * kVector) Vector {
    T of[kVector];
  };

  float of[kDim / 32];

  // The first column of a lane's vector `i`.
  __device__ static int Column(int i, int lane) {
    return (32 * i + lane) * kVector;
  }
  // Adds `row`, times `weight`.
  __device__ void Add(float weight, const RowOfLane& row) {
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) of[i] = fmaf(weight, row.of[i], of[i]);
  }
  // Times `weight`, plus the first `dim` columns of `row` times `row_weight`.
  __device__ void Merge(float weight, float row_weight, const float* row,
                        int dim, int lane) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        const int column = Column(i, lane) + j;
        if (column >= dim) continue;
        float& x = of[kVector * i + j];
        x = fmaf(row_weight, row[column], weight * x);
      }
    }
  }
  __device__ void Get(const float* row, int lane) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const auto vector =
          *reinterpret_cast<const Vector<float>*>(row + Column(i, lane));
#pragma unroll
      for (int j = 0; j < kVector; ++j) of[kVector * i + j] = vector.of[j];
    }
  }
  // Stores the first `dim` columns to `row`, rounded to Out.
  template <class Out>
  __device__ void Put(Out* row, int dim, int lane) const {
    const bool aligned =
        reinterpret_cast<uintptr_t>(row) % sizeof(Vector<Out>) == 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int column = Column(i, lane);
      Vector<Out> vector;
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        vector.of[j] = FromFloat<Out>(of[kVector * i + j]);
      }
      if (aligned && column + kVector <= dim) [[likely]] {
        *reinterpret_cast<Vector<Out>*>(row + column) = vector;
        continue;
      }
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        if (column + j < dim) row[column + j] = vector.of[j];
      }
    }
  }
};

// The state of one row, spread over a warp: all lanes have m and l.
template <int kDim>
struct RowState {
  float m = -INFINITY, l = 0.0f;
  RowOfLane<kDim> a{};
};

// The partial results of a tile's rows in the launch's scratch: a record
// (partials.h) for each row and part, and a counter of the parts that are done.
template <int kDim>
class Partials {
 public:
  __device__ Partials(const LaunchParams& params, const DecodeTile& tile)
      : stride_(tile.record_stride),
        records_(params.scratch + tile.first_record * kFloats),
        counter_(params.counters + tile.counter) {}

  // Writes the record of row r and part `part`. For all lanes of a warp.
  __device__ void Put(int r, int part, const RowState<kDim>& state,
                      int lane) const {
    float* record = Record(r, part);
    if (lane == 0) {
      *reinterpret_cast<float2*>(record) = make_float2(state.m, state.l);
    }
    state.a.Put(record + kRecordA, kDim, lane);
  }
  __device__ float* Record(int row, int part) const {
    return records_ + int64_t{row * stride_ + part} * kFloats;
  }
  // How many of the tile's parts have been counted by now. Their records can be
  // read after a FenceAcquire.
  __device__ uint32_t Counted() const { return ptx::LoadRelaxed(counter_); }
  // Counts this part and says whether it is the last. If it is, the counter
  // wraps to 0, as the next launch needs it, and the records of all parts can
  // then be read. For one thread, after a barrier at which all of the block's
  // records were written.
  __device__ bool Count(int parts) const {
    return ptx::AtomicIncrement(counter_, parts - 1) == parts - 1;
  }
  // Makes the counter 0 in place of Count, for a last part that does not count
  // itself.
  __device__ void Reset() const { *counter_ = 0; }

 private:
  static constexpr int kFloats = RecordFloats(kDim);

  const int stride_;
  float* const records_;
  uint32_t* const counter_;
};

// Stores a row r of O, a / l, and its LSE, (E7), from the state of all its
// columns, merged with what the row has before. For all lanes of a warp.
template <class T, int kDim>
__device__ void StoreRow(const DecodeTile& tile, int r,
                         const OutputPlace& place, const RowState<kDim>& state,
                         int lane) {
  const DeviceProblem& p = *tile.block.sequence.problem;
  RowMerge merge{LogSumExp(state.m, state.l)};
  if (p.before != 0) {
    merge =
        MergeBefore(tile.block.sequence, tile.Head(r), tile.Row(r), merge.lse);
  }
  if (place.o != nullptr) {
    const bool empty = state.l == 0.0f;
    const float weight = 1.0f / state.l;
    RowOfLane<kDim> o = state.a;
#pragma unroll
    for (float& x : o.of) x = empty ? 0.0f : x * weight;
    if (merge.before != nullptr) {
      o.Merge(merge.weight, merge.weight_before, merge.before, p.value_dim,
              lane);
    }
    if (p.o.dtype == DType::kF32) {
      o.Put(reinterpret_cast<float*>(place.o), p.value_dim, lane);
    } else {
      o.Put(reinterpret_cast<T*>(place.o), p.value_dim, lane);
    }
  }
  if (place.lse != nullptr && lane == 0) {
    *place.lse = merge.lse;
  }
}

// Merges the states that the block's warps have of row r. The a of warp w
// begins at `memory` + w * bytes_of_a_warp, as PutWarpState wrote it. For all
// lanes of a warp.
template <int kDim, int kWarps>
__device__ void MergeWarps(const WarpStates<kWarps>& states,
                           const std::byte* memory, int bytes_of_a_warp, int r,
                           int lane, RowState<kDim>& state) {
  state = {};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) state.m = fmaxf(state.m, states.m[w][r]);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float weight = Weight(states.m[w][r], state.m, states.shift[w][r]);
    const auto* of =
        reinterpret_cast<const float*>(memory + w * bytes_of_a_warp) +
        r * StateStride(kDim);
    state.l = fmaf(weight, states.l[w][r], state.l);
    RowOfLane<kDim> row;
    row.Get(of, lane);
    state.a.Add(weight, row);
  }
}

// Merges the parts of row r, in the order of their numbers. `state` becomes the
// state of all parts; if `own` is not -1, it is that part's state on entry,
// which has no record. Each lane finds the weight of one part. kTogether parts
// are loaded at once, before their weights are known, so that they wait for
// memory once. For all lanes of a warp.
template <int kTogether, int kDim>
__device__ void MergeParts(const Partials<kDim>& partials, int parts, int own,
                           int r, int lane, RowState<kDim>& state) {
  static_assert(kTogether <= 32);
  const RowState<kDim> mine = state;
  const auto sums_of = [&](int part) {
    if (part == own) return make_float2(mine.m, mine.l);
    if (part >= parts) return make_float2(-INFINITY, 0.0f);
    return __ldcg(reinterpret_cast<const float2*>(partials.Record(r, part)));
  };
  RowOfLane<kDim> rows[kTogether];
  const auto get = [&](int first) {
#pragma unroll
    for (int s = 0; s < kTogether; ++s) {
      rows[s] = first + s == own ? mine.a : RowOfLane<kDim>{};
      if (first + s < parts && first + s != own) {
        rows[s].Get(partials.Record(r, first + s) + kRecordA, lane);
      }
    }
  };
  float2 sums = sums_of(lane);
  get(0);
  float m = sums.x;
  for (int s = lane + 32; s < parts; s += 32) m = fmaxf(m, sums_of(s).x);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, step));
  }
  state = {};
  state.m = m;
#pragma unroll 1
  for (int first = 0; first < parts; first += kTogether) {
    if (first > 0) {
      sums = sums_of(first + lane);
      get(first);
    }
    const float weight = Weight(sums.x, m);
#pragma unroll
    for (int s = 0; s < kTogether; ++s) {
      const float w = __shfl_sync(0xffffffff, weight, s);
      state.l = fmaf(w, __shfl_sync(0xffffffff, sums.y, s), state.l);
      state.a.Add(w, rows[s]);
    }
  }
}

// Merges the states of the block's warps. If the tile's columns are in several
// parts, leaves the result as a record; the block that does so last merges the
// records of all parts. Then stores O and LSE. A block that knows already that
// it is last (states.alone) merges without a record of its own. The a of warp w
// begins at `memory` + w * bytes_of_a_warp. For all threads of the block.
template <class Config, int kWarps>
__device__ void MergeAndStore(const DecodeTile& tile,
                              const OutputPlace (&outputs)[kDecodeTile],
                              const std::byte* memory, int bytes_of_a_warp,
                              const Partials<Config::kDim>& partials,
                              WarpStates<kWarps>& states) {
  constexpr int kDim = Config::kDim;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  RowState<kDim> state;
  bool alone = false;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) alone = alone || states.alone[w];
  if (!alone) {
    for (int r = warp; r < tile.valid; r += kWarps) {
      MergeWarps<kDim>(states, memory, bytes_of_a_warp, r, lane, state);
      partials.Put(r, tile.part, state, lane);
    }
    Stagger();
    __syncthreads();  // all warps have written their rows' records
    if (threadIdx.x == 0) states.last = partials.Count(tile.parts);
    __syncthreads();  // thread 0 has written states.last
    if (!states.last) return;
  } else if (tile.parts > 1 && threadIdx.x == 0) {
    partials.Reset();
  }
  const int own = alone ? tile.part : -1;
  // Few parts are merged by code of their own, which is shorter. kMany rows of
  // a take 64 registers of each lane.
  constexpr int kFew = 4, kMany = 2048 / kDim;
  for (int r = warp; r < tile.stored; r += kWarps) {
    state = {};
    // Padding rows keep an empty state: what the warps computed of them is not
    // of any query.
    if (r < tile.valid) {
      if (alone) {
        MergeWarps<kDim>(states, memory, bytes_of_a_warp, r, lane, state);
      }
      if (tile.parts > kFew) {
        MergeParts<kMany>(partials, tile.parts, own, r, lane, state);
      } else if (tile.parts > 1) {
        MergeParts<kFew>(partials, tile.parts, own, r, lane, state);
      }
    }
    StoreRow<typename Config::T>(tile, r, outputs[r], state, lane);
  }
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_PARTIALS_CUH_
