#ifndef ATTND_KERNELS_CPU_FLASH_PLAN_H_
#define ATTND_KERNELS_CPU_FLASH_PLAN_H_

// How a group of problems becomes tasks for threads. Every decision that a
// result depends on is a function of one sequence's own lengths, heads, dims
// and mask, so that neither the number of threads nor the rest of the group
// changes a bit.

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cpu/tile.h"
#include "kernels/mask.h"

namespace attnd::cpu {

struct FlashTask {
  enum class Kind : uint8_t {
    kPackKv,   // K and V of tokens, for all q rows
    kPackQ,    // Q and dO of rows, and what else they bring, for all columns
    kForward,  // O and LSE of q rows, or what some of the columns give to them
    kMerge,    // O and LSE of q rows whose columns were shared out
    kSlab,     // dK and dV of a slab's columns, and what they give to dQ
    kSum,      // dQ of q rows, from all slabs
    kEmpty,    // outputs of sequence b's tokens past its lengths
  };
  static constexpr int64_t kAllColumns = std::numeric_limits<int64_t>::max();

  Kind kind = Kind::kForward;
  int64_t problem = 0;  // in its group
  int64_t b = 0;
  int64_t head = 0;   // the first q head; for kPackKv and kSlab the kv head
  int64_t heads = 0;  // q heads, all of one kv head
  int64_t first = 0;  // q rows [first, first + count); for kPackKv tokens
  int64_t count = 0;  // for kSlab, columns across the lanes at a time
  // kForward: kv heads from that of `head` on, each with `heads` q heads, whose
  // tiles take turns: where heads lie side by side, a few queries then read K
  // and V page by page.
  int64_t kv_heads = 1;
  double flops = 0;
  // Of bf16: whether scores, and all other products, are to be of f32 words
  // (see words_choice.h). In forward they are the same.
  bool f32_scores = false, f32_words = false;

  // A task may be one part of several, which leave their results in memory of
  // the group's for another task to put together.
  int64_t part = 0, parts = 1;
  Interval columns{0, kAllColumns};  // kForward: of those that its rows see
  int64_t part_floats = 0;           // kForward and kMerge: a kv head's part
  int64_t first_slab = 0;            // kSlab and kSum: in the plan's list

  // Memory that tasks share, as offsets in the wave's, in floats, and once
  // there is any as pointers: what a packing task leaves for others (-1 and
  // null: they pack for themselves, tile by tile), and parts.
  int64_t packed_offset = -1, offset = 0;
  float* packed = nullptr;
  float* workspace = nullptr;
};

// Columns of all segments' own tokens in a row, whose task sums up dQ by
// itself for the rows that see any of them.
struct Slab {
  Interval columns;
  Interval rows;
  int64_t offset = 0;  // of its sum [q heads of the kv head, rows, SlabStride]
};

// Floats from one row of a slab's sum to the next.
inline int64_t SlabStride(const Problem& p) {
  return (p.head_dim + 15) / 16 * 16;
}

// Floats that a row takes, packed: as words of its own, or of bf16 also as
// words that it shares with the next row.
inline int64_t PackedFloats(DType dtype, int64_t dim) {
  const int64_t alone = TileStride(dim);
  if (dtype != DType::kBF16) return alone;
  return std::max(alone, TileStride((dim + 1) / 2) + (alone + 1) / 2);
}
// What Q and dO of a q head take, packed, with LSE and delta.
inline int64_t PackedRowsFloats(const Problem& p, int64_t q_len) {
  return (q_len + 15) / 16 * 16 *
         (PackedFloats(p.dtype(), p.head_dim) +
          PackedFloats(p.dtype(), p.value_dim) + 2);
}
// Tokens to a packing task; even, as two may share a word.
inline constexpr int64_t kPackTokens = 512;

// Tasks that run at once, longest first, in three turns: those that pack, those
// that compute, and those that put parts together. Waves run one after another
// in the same memory.
struct FlashWave {
  std::array<std::vector<FlashTask>, 3> turns;
  int64_t floats = 0;  // of memory
};

struct FlashPlan {
  std::vector<FlashWave> waves;
  std::vector<Slab> slabs;

  absl::Span<const Slab> Slabs(const FlashTask& task) const {
    return absl::MakeConstSpan(slabs).subspan(task.first_slab, task.parts);
  }
  // What a wave takes at most, in floats.
  int64_t workspace_floats() const;
  // Gives the tasks their memory, of workspace_floats().
  void Place(float* memory);
};

// Whether the problem has any output element; without one a batch may be of
// any size at no cost to whoever asks.
bool HasOutputs(Op op, const Problem& problem);

// The rows of each block of q rows that forward cuts a q head into, but for the
// last.
int64_t ForwardBlockRows(const Problem& p, int64_t q_len);

// The last of those blocks: where it
// begins, and the lanes of its task, which alone can be fewer than 16. Backward
// asks, to find the scores of these rows as forward does.
struct ForwardRows {
  int64_t first, lanes;
};
ForwardRows LastForwardRows(const Problem& p, int64_t q_len, int64_t head);

// Plans for `threads`, which decide how much runs at once but no result.
FlashPlan PlanForward(absl::Span<const ForwardArgs> group, int threads);
FlashPlan PlanBackward(absl::Span<const BackwardArgs> group, int threads);

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_FLASH_PLAN_H_
