#ifndef ATTND_KERNELS_CUDA_SM90_EPILOGUE_CUH_
#define ATTND_KERNELS_CUDA_SM90_EPILOGUE_CUH_

// From accumulators to O and LSE in memory.

#include <cstdint>

#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/sm90/shared.cuh"
#include "kernels/cuda/sm90/softmax.cuh"
#include "kernels/cuda/sm90/store_row.cuh"
#include "kernels/cuda/sm90/tensor_maps.h"
#include "kernels/cuda/tile/element.cuh"
#include "kernels/cuda/tile/row.cuh"
#include "kernels/cuda/tile/row_before.cuh"

namespace attnd::cuda::sm90 {

// Stores a warp's 16 rows of O, from row `first` of the tile on, by the copy
// engine, through kPanels panels T [16][64] at `panels`. Rows that the tensor
// does not have are left out.
template <class T, int kPanels, int kCount>
__device__ void StoreBoxes(const float (&o)[kCount], const LoadSlot& tile,
                           int first, uint32_t panels, int lane) {
  constexpr int kGroups = kCount / 4;  // groups of 8 columns
  const int row = lane % 16;
  const uint32_t put = panels + row * 128 + ((lane / 16 ^ (row & 7)) << 4);
#pragma unroll
  for (int panel = 0; panel < (kGroups + 7) / 8; ++panel) {
    const int place = panel % kPanels;
    if (place == 0) {
      ptx::WaitForStores<true>();
      __syncwarp();  // the copy engine has read the panels
    }
#pragma unroll
    for (int n = 0; n < 8 && 8 * panel + n < kGroups; n += 2) {
      const int e = 4 * (8 * panel + n);
      ptx::StoreMatrices(
          (put ^ (n << 4)) + place * kWarpRows * 128,
          ptx::Pack<T>(o[e], o[e + 1]), ptx::Pack<T>(o[e + 2], o[e + 3]),
          ptx::Pack<T>(o[e + 4], o[e + 5]), ptx::Pack<T>(o[e + 6], o[e + 7]));
    }
    if (place + 1 < kPanels && 8 * panel + 8 < kGroups) continue;
    ptx::FenceAsyncProxy();
    __syncwarp();  // all lanes have written theirs
    if (lane == 0) {
      const CUtensorMap* map = tile.maps + kMapO;
      if (tile.copied) ptx::FenceTensorMap(map);
#pragma unroll
      for (int i = 0; i <= place; ++i) {
        ptx::TmaStore(map, 64 * (panel - place + i), tile.first_row + first,
                      tile.head, tile.b, panels + i * kWarpRows * 128);
      }
      ptx::CommitStores();
    }
  }
}

// Whether row `row` of the tile is to be written.
__device__ inline bool IsStored(const TileSlot& slot, int row) {
  return row >= slot.first_stored && row < slot.end_stored;
}

// Stores row `row` of the tile, which is the thread's first or second row, by
// r, in O's type, T. All lanes of the warp call it.
template <class T, bool kPairs, int kCount>
__device__ void StoreAnyRow(const float (&o)[kCount], int r,
                            const TileSlot& slot, int row, int lane) {
  const bool stored = IsStored(slot, row);
  if (kPairs && slot.o_aligned) {
    StorePairs(o, r, static_cast<T*>(slot.o) + row * slot.o_stride, stored,
               slot.value_dim, lane);
  } else if (stored && slot.o != nullptr) {
    StoreElements(o, r, static_cast<T*>(slot.o) + row * slot.o_stride,
                  slot.value_dim, lane);
  }
}

// (E7) of a row that saw something, from m and l. `scale` brings scores to
// natural units, and c to units of log2. The GPU's approximate logarithm is off
// by some 2^-22 of log2 l, or of 1. Where one score outweighs all others, and m
// is that score, LSE must be the score to the bit, as backward computes it. So
// what can only be errors of approximation is left out: it might turn a
// rounding.
__device__ inline float LogSumExp(float m, float l, float scale, float c) {
  const float more = (ptx::Log2(l) - LostOfBase(m, c)) * kLn2;
  const bool nothing = fabsf(more) < fabsf(__fmul_rn(m, c)) * 0x1p-26f;
  return fmaf(m, scale, nothing ? 0.0f : more);
}

// 1 / l of a thread's two rows, by which O is to be multiplied. 0 if the row
// saw nothing or is not valid, or if its tile has to be done again.
struct Weights {
  float row[2] = {0.0f, 0.0f};
};

// Whether a row of the warp has overflowed, which marks the tile: it has to be
// done again. `sum`: l of the thread's two rows. A row of a type whose products
// may overflow counts as overflowed if it looks as if it saw nothing, since all
// its scores may have become -inf. `row` is the thread's first in the tile.
// `fast`: whether the slot is kFast, which callers know without asking it.
template <class T>
__device__ bool MarkOverflow(const OnlineSoftmax& softmax,
                             const float (&sum)[2], TileSlot& slot, bool fast,
                             int row, int lane) {
  bool again = false;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool overflowed = softmax.Overflowed(r, sum[r], slot.factor) ||
                            (kProductsOverflow<T> && sum[r] == 0.0f);
    again = again || (fast && row + 8 * r < slot.valid && overflowed);
  }
  if (!__any_sync(0xffffffff, again)) return false;
  if (lane == 0) slot.overflowed = true;
  __syncwarp();  // all lanes see the mark
  return true;
}

// Stores LSE, which is -inf if a row saw nothing, and returns the weights of O,
// unless the tile has to be done again. Parameters: as of MarkOverflow.
//
// Each warp runs this and Finish once a tile, when nothing hides the latency of
// instructions. So rows of the usual kind take as few of them as possible.
template <class T>
__device__ Weights Close(const OnlineSoftmax& softmax, TileSlot& slot,
                         bool fast, int row, int lane) {
  const float sum[2] = {QuadSum(softmax.l[0]), QuadSum(softmax.l[1])};
  const float c = slot.factor, scale = slot.rule.natural_factor(fast);
  const float m[2] = {__fmul_rn(softmax.m[0], c), __fmul_rn(softmax.m[1], c)};
  const bool plain = (row + 8 < slot.valid) & (fminf(sum[0], sum[1]) > 0.0f) &
                     (fmaxf(fabsf(m[0]), fabsf(m[1])) < kMostLog2) &
                     (sum[0] + sum[1] < INFINITY);
  if (__all_sync(0xffffffff, plain)) [[likely]] {
    // Two lanes of each quad store LSE of a row each.
    const int r = lane % 4;
    if (r < 2 && slot.lse != nullptr) {
      const float of = r == 1 ? softmax.m[1] : softmax.m[0];
      const float l = r == 1 ? sum[1] : sum[0];
      ptx::StoreGlobal4(ptx::GlobalAddress(slot.lse + (row + 8 * r)),
                        LogSumExp(of, l, scale, c));
    }
    return {{ptx::Reciprocal(sum[0]), ptx::Reciprocal(sum[1])}};
  }
  if (MarkOverflow<T>(softmax, sum, slot, fast, row, lane)) return {};
  Weights weights;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = row + 8 * r;
    const bool empty = sum[r] == 0.0f || i >= slot.valid;
    if (slot.lse != nullptr && IsStored(slot, i) && lane % 4 == 0) {
      slot.lse[i] =
          empty ? -INFINITY : LogSumExp(softmax.m[r], sum[r], scale, c);
    }
    if (!empty) weights.row[r] = ptx::Reciprocal(sum[r]);
  }
  return weights;
}

// Multiplies row r of a thread by its weight. O of a row that saw nothing,
// which weighs 0, may be NaN.
template <int kCount>
__device__ void WeighRow(float weight, int r, float (&o)[kCount]) {
#pragma unroll
  for (int i = 2 * r; i < kCount; i += i % 2 == 0 ? 1 : 3) {
    o[i] = weight == 0.0f ? 0.0f : o[i] * weight;
  }
}

// Close of a tile that is alone (TileSlot): weighs O itself and merges rows
// with what they have before, (E19) and (E20). An O of f32 is stored here, too,
// and one of 16 bits by Finish, for which nothing is left to weigh.
template <class T, int kCount>
__device__ Weights CloseAlone(const OnlineSoftmax& softmax, TileSlot& slot,
                              const LoadSlot& tile, bool fast, int row,
                              int lane, float (&o)[kCount]) {
  const float sum[2] = {QuadSum(softmax.l[0]), QuadSum(softmax.l[1])};
  if (MarkOverflow<T>(softmax, sum, slot, fast, row, lane)) return {};
  // What the thread's two rows have before is on its way together, first LSE
  // and then O: by now nothing else hides how long that takes.
  float before[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = row + 8 * r;
    before[r] = IsStored(slot, i)
                    ? LseBefore(tile.sequence, tile.head, slot.first_row + i)
                    : -INFINITY;
  }
  RowMerge merges[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = row + 8 * r;
    const bool empty = sum[r] == 0.0f || i >= slot.valid;
    const float lse =
        empty ? -INFINITY
              : LogSumExp(softmax.m[r], sum[r], slot.rule.natural_factor(fast),
                          slot.factor);
    merges[r] =
        MergeWith(tile.sequence, tile.head, slot.first_row + i, lse, before[r]);
    WeighRow(empty ? 0.0f : ptx::Reciprocal(sum[r]) * merges[r].weight, r, o);
  }
  AddRows<16>({merges[0].weight_before, merges[1].weight_before},
              {merges[0].before, merges[1].before}, slot.value_dim, lane, o);
  const bool is_f32 = slot.o_dtype == DType::kF32;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = row + 8 * r;
    if (!IsStored(slot, i)) continue;
    if (slot.lse != nullptr && lane % 4 == 0) slot.lse[i] = merges[r].lse;
    if (is_f32 && slot.o != nullptr) {
      StoreFloats(o, r, static_cast<float*>(slot.o) + i * slot.o_stride,
                  slot.o_aligned, slot.value_dim, lane);
    }
  }
  return {{1.0f, 1.0f}};
}

// The end of (E9): multiplies O by 1 / l and stores it, 0 for rows that saw
// nothing, unless the tile has to be done again. `panels`: as of StoreBoxes.
template <class T, int kPanels, int kCount>
__device__ void Finish(const Weights& weights, const TileSlot& slot,
                       const LoadSlot& tile, int row, int lane, uint32_t panels,
                       float (&o)[kCount]) {
  if constexpr (kPanels > 0) {
    const bool plain =
        slot.o_boxed & (fminf(weights.row[0], weights.row[1]) > 0.0f);
    if (__all_sync(0xffffffff, plain)) [[likely]] {
      ScaleRows(o, weights.row);
      StoreBoxes<T, kPanels>(o, tile, row - lane / 4, panels, lane);
      return;
    }
  }
  if (slot.overflowed || slot.o_dtype == DType::kF32) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    WeighRow(weights.row[r], r, o);
    StoreAnyRow<T, kPanels == 0>(o, r, slot, row + 8 * r, lane);
  }
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_EPILOGUE_CUH_
