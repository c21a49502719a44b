// A block of a few queries in forward, which reads K and V where they lie.
// Compiled once per target.
#if defined(ATTND_KERNELS_CPU_DECODE_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_DECODE_BLOCK_INL_H_
#undef ATTND_KERNELS_CPU_DECODE_BLOCK_INL_H_
#else
#define ATTND_KERNELS_CPU_DECODE_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/in_place_products-inl.h"
#include "kernels/cpu/query_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {

// A few queries of one kv head.
struct DecodeBlock : QueryBlock {
  DecodeBlock(const ForwardArgs& args, const FlashTask& task, Tile temporary,
              Scratch& scratch)
      : QueryBlock(args, task, TakeScores(args.problem, task, scratch),
                   temporary, scratch),
        q(TakeTile(scratch, lanes.lanes(), p.head_dim)) {
    PackQueries(lanes.lanes(), p.head_dim, p.q.dtype, lanes.RowsOf(p.q), q);
  }

  // Whether scores lie without gaps, so that a vector holds several tokens.
  // The bias is added to whole vectors of queries.
  static bool Dense(const Problem& p, int64_t lanes) {
    return kLanes % lanes == 0 && !p.bias;
  }
  static Tile TakeScores(const Problem& p, const FlashTask& task,
                         Scratch& scratch) {
    const int64_t lanes = task.heads * task.count;
    Tile scores = TakeTile(scratch, kTileTokens, RoundUpToLanes(lanes));
    if (Dense(p, lanes)) scores.stride = lanes;
    return scores;
  }

  // Of a tile: scores become P.
  void AddToSoftmax(int64_t tokens) const {
    const int64_t count = lanes.lanes();
    if (Dense(p, count)) {
      const int64_t vectors = RoundUpToLanes(tokens * count) / kLanes;
      CapScores(vectors, kLanes, {scores.data, kLanes});
      lanes.ApplyMask(scores);
      UpdateDenseSoftmax(tokens, count, scores.data, state);
      return;
    }
    for (int64_t t = 0; t < tokens; ++t) {
      std::fill(scores.row(t) + count, scores.row(t) + width, 0.0f);
    }
    ChangeScores(tokens);
    UpdateSoftmax<F32Words>(tokens, 0, width, scores, state);
  }

  const Tile q;  // [lanes, head_dim]
};

// Adds a tile to each block of queries, every one of another kv head, some
// tokens at a time: heads lie side by side, so memory is read in order.
template <class From>
HWY_NOINLINE void AddTileInPlace(const std::vector<DecodeBlock>& blocks,
                                 const TokenRows& k, const TokenRows& v,
                                 bool first) {
  const int64_t tokens = k.tokens();
  const int64_t dots = DotGroup(blocks.front().lanes.lanes());
  for (int64_t t = 0; t < tokens; t += dots) {
    for (const DecodeBlock& b : blocks) {
      DotQueries<From>(k, t, b.kv_head, b.lanes.lanes(), b.p.head_dim,
                       b.p.scale, b.q, b.scores);
    }
  }
  for (const DecodeBlock& b : blocks) b.AddToSoftmax(tokens);
  if (!blocks.front().args.o) return;
  constexpr int64_t kGroup = 16;  // tokens that O is kept in registers for
  for (int64_t t = 0; t < tokens; t += kGroup) {
    const int64_t end = std::min(t + kGroup, tokens);
    const Old old = t > 0 ? Old::kKept : first ? Old::kNone : Old::kRescaled;
    for (const DecodeBlock& b : blocks) {
      const Addition addition = {.v = v,
                                 .first = t,
                                 .end = end,
                                 .kv_head = b.kv_head,
                                 .p = b.scores,
                                 .old = old,
                                 .rescale = b.state.rescale};
      AddQueries<From>(addition, b.lanes.lanes(), b.p.value_dim, b.acc);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_DECODE_BLOCK_INL_H_
