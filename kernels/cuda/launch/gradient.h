#ifndef ATTND_KERNELS_CUDA_LAUNCH_GRADIENT_H_
#define ATTND_KERNELS_CUDA_LAUNCH_GRADIENT_H_

// Backward as the device sees it: what a problem has beside what forward knows
// of it, and the memory that its kernels hand on to each other.

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/kernel.h"

namespace attnd::cuda {

// Rows of a head are padded to whole tiles in the scratch below, so that every
// kernel reads and adds without asking.
inline constexpr int64_t kGradientRows = 128;
// A head has a counter of turns (turns.cuh) for as many rows; a kernel uses the
// first ones of each of its tiles.
inline constexpr int64_t kTurnRows = 32;
constexpr int64_t PaddedRows(int64_t q_len) {
  return (q_len + kGradientRows - 1) / kGradientRows * kGradientRows;
}

struct DeviceSegmentGradients {
  TensorView dk;  // [batch, len, kv_heads, head_dim], or null
  TensorView dv;  // [batch, len, kv_heads, value_dim], or null
};

struct alignas(16) DeviceGradients {
  ConstTensorView d_o;      // [batch, q_len, q_heads, value_dim], as Q
  ConstTensorView o;        // the same shape, as Q or f32; null: delta is given
  ConstRowView lse;         // [batch, q_heads, q_len]
  ConstRowView delta;       // or null
  ConstRowView d_lse;       // or null
  TensorView dq;            // [batch, q_len, q_heads, head_dim], or null
  BlobOffset segments = 0;  // DeviceSegmentGradients[num_segments]
  DqLayout dq_layout = DqLayout::kRows;
  int32_t dq_dim = 0;  // columns of the sums: head_dim rounded up
  bool deterministic = false;
  int64_t padded_rows = 0;  // of a head
  // Places in the launch's scratch, in words of 4 bytes from its start, each
  // for all heads of all sequences, [batch * q_heads, padded_rows, ...].
  int64_t lse_at = 0;  // f32: LSE as kernels want it, +inf of an empty row
  // f32: the same in natural units, of rows that 16-bit kernels find slowly
  // (score.cuh): where the scores are not plain or huge_at says so.
  int64_t natural_lse_at = 0;
  int64_t delta_at = 0;  // f32: (E11) less the gradient of LSE
  // f32 [..., dq_dim]: dQ / scale * DqPower(scale) (dq_sum.cuh), 0 at first.
  int64_t dq_at = 0;
  int64_t turns_at = 0;  // uint32: see turns.cuh; of deterministic problems
  // uint32 [batch, num_segments, padded_rows / kTurnRows]: TurnsUntil, at the
  // first rows of each tile.
  int64_t turns_until_at = 0;
  // uint32 [batch * q_heads, padded_rows / kGradientRows]: whether an LSE of as
  // many rows is huge (score.cuh); all of them have kHugeLse then. Of 16-bit
  // inputs.
  int64_t huge_at = 0;
  // The tiles that turns are for: the kernel's rows, and columns of a cluster.
  int32_t turn_rows = 0, turn_cols = 0;
  int32_t cluster = 1;  // blocks of threads that have turn_cols together
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_LAUNCH_GRADIENT_H_
