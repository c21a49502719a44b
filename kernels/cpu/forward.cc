#include "kernels/cpu/flash.h"
#include "kernels/cpu/targets.h"
#include "kernels/give_way.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/forward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they compile once per target.
#include <cmath>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/decode_block-inl.h"
#include "kernels/cpu/forward_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class Words>
void PackKv(const ForwardArgs& args, const FlashTask& task, Scratch& scratch) {
  const Problem& p = args.problem;
  scratch.sequence.Pieces(task.first, task.count, &scratch.pieces);
  const PackedKv<Words> packed(p, KvLen(p, task.b), task.packed);
  const auto rows_of = [&](ConstTensorView KvSegment::*which) {
    return KvRows(scratch.sequence, scratch.pieces, which, task.head);
  };
  PackRows<Words>(task.count, p.head_dim, p.dtype(), rows_of(&KvSegment::k),
                  {packed.k.row(task.first), packed.k.stride});
  if (!args.o) return;
  PackAlongTokens<Words>(
      task.count, p.value_dim, p.dtype(), rows_of(&KvSegment::v),
      {packed.v.row(task.first / Words::kElements), packed.v.stride});
}

template <class Words>
void RunForward(const ForwardArgs& args, const FlashTask& task,
                Scratch& scratch) {
  const auto tiles =
      ForwardTiles::Take<Words>(args.problem, task.heads * task.count, scratch);
  std::vector<ForwardBlock<Words>> blocks;  // by kv head
  blocks.reserve(task.kv_heads);
  ForEachKvHead(args.problem, task, [&](const FlashTask& head) {
    blocks.emplace_back(args, head, tiles, scratch);
  });
  TileWalk walk(scratch.sequence, task.first, task.first + task.count - 1,
                task.columns);
  Prefetcher prefetch;
  bool first = true;
  int64_t tokens = walk.Next(&scratch.pieces);
  while (tokens > 0) {
    const int64_t next = walk.Next(&scratch.next_pieces);
    for (auto block = blocks.begin(); block != blocks.end(); ++block) {
      if (!Proceed(args.problem)) return;
      if (block + 1 != blocks.end()) {
        block[1].Prefetch(scratch.pieces, prefetch);
      } else {
        blocks.front().Prefetch(scratch.next_pieces, prefetch);
      }
      block->AddTile(tokens, first, prefetch);
    }
    scratch.pieces.swap(scratch.next_pieces);
    tokens = next;
    first = false;
  }
  for (const ForwardBlock<Words>& block : blocks) block.Finish();
}

void RunDecode(const ForwardArgs& args, const FlashTask& task,
               Scratch& scratch) {
  const Problem& p = args.problem;
  const int64_t width = RoundUpToLanes(task.heads * task.count);
  const Tile temporary = TakeTile(scratch, p.bias ? kTileTokens : 0, width);
  std::vector<DecodeBlock> blocks;  // by kv head
  blocks.reserve(task.kv_heads);
  ForEachKvHead(p, task, [&](const FlashTask& head) {
    blocks.emplace_back(args, head, temporary, scratch);
  });
  TileWalk walk(scratch.sequence, task.first, task.first + task.count - 1,
                task.columns);
  bool first = true;
  walk.Next(&scratch.pieces);
  while (!scratch.pieces.empty()) {
    if (!Proceed(p)) return;
    walk.Next(&scratch.next_pieces);
    const auto rows = [&](ConstTensorView KvSegment::*which) {
      return TokenRows(scratch.sequence, scratch.pieces, scratch.next_pieces,
                       which);
    };
    const TokenRows k = rows(&KvSegment::k);
    const TokenRows v = args.o ? rows(&KvSegment::v) : k;
    WithElements(p.dtype(), [&](auto from) {
      AddTileInPlace<decltype(from)>(blocks, k, v, first);
    });
    scratch.pieces.swap(scratch.next_pieces);
    first = false;
  }
  for (const DecodeBlock& block : blocks) block.Finish();
}

}  // namespace

void RunPackKvTask(const ForwardArgs& args, const FlashTask& task,
                   Scratch& scratch) {
  scratch.sequence.Reset(args.problem, task.b);
  WithWords(args.problem, task.f32_words,
            [&](auto words) { PackKv<decltype(words)>(args, task, scratch); });
}

void RunForwardTask(const ForwardArgs& args, const FlashTask& task,
                    Scratch& scratch) {
  scratch.Begin();
  scratch.sequence.Reset(args.problem, task.b);
  if (ReadsInPlace(args.problem, task.heads * task.count)) {
    return RunDecode(args, task, scratch);
  }
  WithWords(args.problem, task.f32_words, [&](auto words) {
    RunForward<decltype(words)>(args, task, scratch);
  });
}

// (E19), (E20): the parts in ascending order, into the first.
void RunMergeTask(const ForwardArgs& args, const FlashTask& task,
                  Scratch& scratch) {
  scratch.Begin();
  scratch.sequence.Reset(args.problem, task.b);
  const LaneRows lanes(scratch, task.head, task.heads, task.first, task.count);
  const F32 d;
  const Partial into(args, task, 0);
  for (int64_t lane = 0; lane < lanes.lanes(); ++lane) {
    float max = -kInf;
    for (int64_t part = 0; part < task.parts; ++part) {
      max = std::max(max, Partial(args, task, part).max[lane]);
    }
    float sum = 0;
    for (int64_t part = 0; part < task.parts; ++part) {
      const Partial from(args, task, part);
      const float rescale =
          from.sum[lane] == 0 ? 0 : std::exp(from.max[lane] - max);
      sum += rescale * from.sum[lane];
      if (!args.o || (rescale == 0 && part > 0)) continue;
      for (int64_t i = 0; i < args.problem.value_dim; i += kLanes) {
        const Vf x = rescale == 0
                         ? hn::Zero(d)
                         : hn::Mul(hn::Set(d, rescale),
                                   hn::Load(d, from.acc.row(lane) + i));
        float* to = into.acc.row(lane) + i;
        hn::Store(part == 0 ? x : hn::Add(hn::Load(d, to), x), d, to);
      }
    }
    into.max[lane] = max;
    into.sum[lane] = sum;
  }
  WriteOutput(args, lanes, {into.max, into.sum, nullptr}, into.acc);
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

bool DotsBF16() { return ATTND_BF16_DOT && HasBF16Dot(); }

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnd::cpu {

HWY_EXPORT(RunPackKvTask);
HWY_EXPORT(RunForwardTask);
HWY_EXPORT(RunMergeTask);
HWY_EXPORT(TargetName);
HWY_EXPORT(DotsBF16);

void RunFlashPackKv(const ForwardArgs& args, const FlashTask& task,
                    Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(RunPackKvTask)(args, task, scratch);
}

void RunFlashForward(const ForwardArgs& args, const FlashTask& task,
                     Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(RunForwardTask)(args, task, scratch);
}

void RunFlashMerge(const ForwardArgs& args, const FlashTask& task,
                   Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(RunMergeTask)(args, task, scratch);
}

const char* FlashTargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }
bool FlashDotsBF16() { return HWY_DYNAMIC_DISPATCH(DotsBF16)(); }

}  // namespace attnd::cpu
#endif  // HWY_ONCE
