#ifndef ATTND_KERNELS_CUDA_LAUNCH_GRADIENT_H_
#define ATTND_KERNELS_CUDA_LAUNCH_GRADIENT_H_

// Backward as the device sees it: what a problem has beside its DeviceProblem,
// and the scratch through which backward's kernels hand on to each other what
// they find.

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/kernel.h"

namespace attnd::cuda {

// In scratch the rows of a head are padded to a multiple of this, so that every
// kernel reads and adds whole tiles without asking where rows end.
inline constexpr int64_t kGradientRows = 128;
// A head has a counter of turns (tile/turns.cuh) for each this many rows. A
// kernel whose tiles have more rows uses the first counter of each tile.
inline constexpr int64_t kTurnRows = 32;
constexpr int64_t PaddedRows(int64_t q_len) {
  return (q_len + kGradientRows - 1) / kGradientRows * kGradientRows;
}

struct DeviceSegmentGradients {
  TensorView dk;  // [batch, len, kv_heads, head_dim], or null
  TensorView dv;  // [batch, len, kv_heads, value_dim], or null
  // What they are added to, f32, or null for 0. Null where they are.
  ConstTensorView dk_before, dv_before;
};

struct alignas(16) DeviceGradients {
  ConstTensorView d_o;        // [batch, q_len, q_heads, value_dim], as Q
  ConstTensorView o;          // as d_o, or f32; null: delta is given
  ConstRowView lse;           // [batch, q_heads, q_len]
  ConstRowView delta;         // or null
  ConstRowView d_lse;         // or null
  TensorView dq;              // [batch, q_len, q_heads, head_dim], or null
  ConstTensorView dq_before;  // what it is added to, f32, or null
  BlobOffset segments = 0;    // DeviceSegmentGradients[num_segments]
  DqLayout dq_layout = DqLayout::kRows;
  int32_t dq_dim = 0;  // columns of the sums of dQ: head_dim rounded up
  bool deterministic = false;
  int64_t padded_rows = 0;  // rows per head in scratch
  // Where the problem's parts of the launch's scratch begin, in words of 4
  // bytes. Unless said otherwise each is of the shape [batch * q_heads,
  // padded_rows].
  //
  // f32: LSE in the units that the main kernel wants, +inf of an empty row.
  int64_t lse_at = 0;
  // f32: the same in natural units. Kernels for 16-bit inputs read it where the
  // scores are not plain, and of rows that huge_at names (tile/score.cuh).
  int64_t natural_lse_at = 0;
  // f32: delta (E11) less the gradient of LSE.
  int64_t delta_at = 0;
  // f32 [batch * q_heads, padded_rows, dq_dim], in dq_layout: the sums of
  // dQ / scale * DqPower(scale) (tile/dq_sum.cuh), 0 at first.
  int64_t dq_at = 0;
  // uint32 [batch * q_heads, padded_rows / kTurnRows]: whose turn it is
  // (tile/turns.cuh). For deterministic problems.
  int64_t turns_at = 0;
  // uint32 [2, batch, num_segments, padded_rows / kTurnRows]: TurnsUntil and
  // TurnsBefore, at the first rows of each tile. For deterministic problems.
  int64_t turn_offsets_at = 0;
  // uint32 [batch * q_heads, padded_rows / kGradientRows]: whether one of these
  // kGradientRows rows has a huge LSE (tile/score.cuh); lse_at then has
  // kHugeLse for all of them but empty ones. For 16-bit inputs.
  int64_t huge_at = 0;
  // The tiles that take turns: the main kernel's rows and columns.
  int32_t turn_rows = 0, turn_cols = 0;
  int32_t cluster = 1;  // blocks of threads per cluster, as Kernel has it
  // Of the sequences' K/V heads, the one that is this problem's head 0, and how
  // many there are.
  int32_t first_kv_head = 0, whole_kv_heads = 0;
};
// Words of each half of what lies at turn_offsets_at.
constexpr int64_t TurnWords(const DeviceProblem& problem,
                            const DeviceGradients& g) {
  return problem.batch * problem.num_segments * g.padded_rows / kTurnRows;
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_GRADIENT_H_
