#ifndef ATTND_KERNELS_ATTENTION_H_
#define ATTND_KERNELS_ATTENTION_H_

// What an attention problem is. Everything in this repository starts here.
//
//   score(i,j) = scale * q_i . k_j, softcapped if asked, + bias, then masked
//   P = softmax over j,  O = P V,  LSE_i = ln sum_j exp(score(i,j))
//
// A Problem is one batch of sequences that share heads, dims, types and mask
// parameters. All memory belongs to the caller; every tensor is a view. The
// equations are numbered in kernels/README.md.

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"

namespace attnd {

enum class DType : uint8_t { kF32, kF16, kBF16 };

constexpr int64_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

enum class Op : uint8_t { kForward, kBackward };

// kAuto is the backend's own fast kernel; the others are the algorithms as
// their papers give them, kept to be compared.
enum class Algorithm : uint8_t {
  kAuto,
  kNaive,
  kOnlineSoftmax,
  kFlashAttention1,
  kFlashAttention2,
};

// The largest head_dim and value_dim.
inline constexpr int64_t kMaxHeadDim = 256;
// Positions lie in [-kMaxPosition, kMaxPosition]: differences never overflow.
inline constexpr int64_t kMaxPosition = int64_t{1} << 60;

// A tensor [batch, tokens, heads, dim], dim contiguous, strides in elements.
// Layouts, subsets of heads and stripes of tokens are all just strides.
template <typename Void>
struct BasicTensorView {
  Void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t batch_stride = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;

  explicit operator bool() const { return data != nullptr; }
};
using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

// LSE, delta and their kin: [batch, q_heads, q_len], f32, q_len contiguous.
template <typename Float>
struct BasicRowView {
  Float* data = nullptr;
  int64_t batch_stride = 0;
  int64_t head_stride = 0;

  explicit operator bool() const { return data != nullptr; }
};
using RowView = BasicRowView<float>;
using ConstRowView = BasicRowView<const float>;

// An additive bias [batch, q_heads, q_len, all segments' tokens], the last
// contiguous. A stride of 0 broadcasts over that dimension.
struct BiasView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t batch_stride = 0;
  int64_t head_stride = 0;
  int64_t row_stride = 0;

  explicit operator bool() const { return data != nullptr; }
};

// Token t of sequence b stands at (starts.empty() ? start : starts[b]) +
// t * stride. Masks compare positions, never indices.
struct Positions {
  int64_t start = 0;
  int64_t stride = 1;                     // >= 1
  absl::Span<const int64_t> starts = {};  // [batch] or empty
};

// A run of K/V tokens: a whole sequence, a shard, a chunk or a page. Segments
// are visited in order under one softmax state, so they need no merge.
struct KvSegment {
  ConstTensorView k;  // [batch, len, kv_heads, head_dim], as Q
  ConstTensorView v;  // [batch, len, kv_heads, value_dim], as Q
  int64_t len = 0;
  absl::Span<const int64_t> lens = {};  // [batch], each <= len; empty: all len
  Positions positions;
  // Backward's outputs; a null view is not computed. As Q or f32.
  TensorView dk;  // [batch, len, kv_heads, head_dim]
  TensorView dv;  // [batch, len, kv_heads, value_dim]
  // What they are added to, of the same shapes: f32, or null for 0. See
  // BackwardArgs.
  ConstTensorView dk_before = {};
  ConstTensorView dv_before = {};
};

// Row i sees column j when pos_i - left <= pos_j <= pos_i + right, and
// pos_j <= pos_i if causal. -1 is unlimited. See mask.h.
struct Mask {
  bool causal = false;
  int64_t left = -1;
  int64_t right = -1;
};

// Set by whoever gives up on a problem, polled by kernels as often as
// their device can: a CPU once per tile block, a GPU before a launch.
// The outputs of a cancelled problem are undefined.
class CancelToken {
 public:
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
};

// The lengths and heads of the sequence that a problem is a part of, and which
// of these K/V heads is the problem's head 0.
struct Whole {
  int64_t q_len = 0, kv_len = 0;
  int64_t q_heads = 0, kv_heads = 0;
  int64_t kv_head = 0;
};

// The inputs that forward and backward share.
struct Problem {
  int64_t batch = 0;
  int64_t q_len = 0;
  int64_t q_heads = 0;  // a multiple of kv_heads
  int64_t kv_heads = 0;
  int64_t head_dim = 0;   // 1..kMaxHeadDim, of Q and K
  int64_t value_dim = 0;  // 1..kMaxHeadDim, of V and O

  ConstTensorView q;  // [batch, q_len, q_heads, head_dim], f32, f16 or bf16
  absl::Span<const KvSegment> kv;
  BiasView bias;  // may be null; f32 or as Q

  absl::Span<const int64_t> q_lens = {};  // [batch], each <= q_len; empty: all
  // Where row 0 stands. Unset (and q_starts empty): kv_len - q_len of each
  // sequence's own lengths, the bottom-right corner.
  std::optional<int64_t> q_start;
  absl::Span<const int64_t> q_starts = {};  // [batch] or empty
  int64_t q_stride = 1;                     // >= 1

  Mask mask;
  // Any finite value. scale * q_i . k_j is an f32: out of its range, in q_i .
  // k_j already or by the scale, it counts as +-3.4e38, the largest f32 of its
  // sign. So finite inputs have finite O and LSE, except that a row may be NaN
  // where parts of one q_i . k_j leave the range with both signs, where q_i .
  // k_j leaves it and the scale is 0, or where a bias added to it does.
  float scale = 1.0f;
  std::optional<float> softcap;  // c > 0: score becomes c * tanh(score / c)
  // Set where this is a part of a sequence (batch is 1) whose results must have
  // the bits that the whole one's have: what decides bits then goes by the
  // whole one's sizes. See cut_unit.h for where parts may begin and end.
  std::optional<Whole> whole;
  const CancelToken* cancel = nullptr;  // may be null

  DType dtype() const { return q.dtype; }
  int64_t group() const { return kv_heads == 0 ? 1 : q_heads / kv_heads; }
};

// O and LSE of the same rows over other columns, in memory of its own. A row
// that has seen none of those has LSE = -inf, and its O is not read.
struct RowState {
  ConstTensorView o;  // [batch, q_len, q_heads, value_dim], f32
  ConstRowView lse;   // [batch, q_heads, q_len], natural log; null: none
};

// Rows with nothing to attend to, and rows past q_lens[b], get O = 0 and
// LSE = -inf.
struct ForwardArgs {
  Problem problem;
  TensorView o;  // [batch, q_len, q_heads, value_dim], as Q or f32, or null
  RowView lse;   // [batch, q_heads, q_len], natural log, or null
  // What the results are merged with, (E19) and (E20), so that they are those
  // over both sets of columns. Its o is read only where O is wanted.
  RowState before = {};
};

// dS = P * (dP - delta + d_lse), P = exp(score - lse); lse is above all scores.
// Rows with lse = -inf, tokens past their sequence's length: gradients of 0.
//
// What is written to dq, dk or dv is the gradient, or where its dq_before,
// dk_before or dv_before is given the sum of that and the gradient, in f32 and
// rounded once to the output's type; so of the rows and tokens above it is what
// was there before. An element is read before it is written: the memory may be
// the output's own, if that is f32 and both views are the same, and must not
// overlap it otherwise. It is not read where the output is null.
struct BackwardArgs {
  Problem problem;      // dk and dv are in its segments
  ConstTensorView d_o;  // [batch, q_len, q_heads, value_dim], as Q
  ConstRowView lse;     // [batch, q_heads, q_len]: over all shards of K/V
  ConstTensorView o;    // as d_o's shape, as Q or f32; null if delta is given
  ConstRowView delta;   // [batch, q_heads, q_len] = rowsum(d_o * o), or null
  ConstRowView d_lse;   // [batch, q_heads, q_len], or null for 0
  TensorView dq;  // [batch, q_len, q_heads, head_dim], as Q or f32, or null
  ConstTensorView dq_before = {};  // as dq's shape, f32, or null for 0
};

// The sequence's own lengths.
inline int64_t QLen(const Problem& p, int64_t b) {
  return p.q_lens.empty() ? p.q_len : p.q_lens[b];
}
inline int64_t KvLen(const KvSegment& s, int64_t b) {
  return s.lens.empty() ? s.len : s.lens[b];
}
inline int64_t KvLen(const Problem& p, int64_t b) {
  int64_t total = 0;
  for (const KvSegment& s : p.kv) total += KvLen(s, b);
  return total;
}

// The sizes that may decide the bits of a sequence's results, if it has these
// lengths itself.
inline Whole WholeOf(const Problem& p, int64_t q_len, int64_t kv_len) {
  return p.whole.value_or(Whole{q_len, kv_len, p.q_heads, p.kv_heads});
}
inline Whole WholeOf(const Problem& p, int64_t b) {
  return WholeOf(p, QLen(p, b), KvLen(p, b));
}

// With padding: what no sequence's length exceeds, and a row of the bias holds.
inline int64_t PaddedKvLen(const Problem& p) {
  int64_t total = 0;
  for (const KvSegment& s : p.kv) total += s.len;
  return total;
}

}  // namespace attnd

#endif  // ATTND_KERNELS_ATTENTION_H_
