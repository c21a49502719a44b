#include "kernels/cpu/flash.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they compile once per target.
#include "hwy/highway.h"
#include "kernels/cpu/backward_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {
namespace {

// (E17): dQ of the task's rows, the slabs in ascending order.
void SumSlabs(const BackwardArgs& args, const FlashTask& task,
              absl::Span<const Slab> slabs) {
  const F32 d;
  const Problem& p = args.problem;
  HWY_ALIGN static constexpr float kNothing[kMaxHeadDim] = {};
  HWY_ALIGN float memory[kMaxHeadDim];
  for (int64_t row = task.first; row < task.first + task.count; ++row) {
    const float* sum = kNothing;
    for (const Slab& slab : slabs) {
      if (row < slab.rows.lo || row >= slab.rows.hi) continue;
      const float* from = SumTile(p, task, slab, task.head, row).data;
      if (sum == kNothing) {
        sum = from;
        continue;
      }
      for (int64_t i = 0; i < p.head_dim; i += kLanes) {
        hn::Store(hn::Add(hn::Load(d, sum + i), hn::Load(d, from + i)), d,
                  memory + i);
      }
      sum = memory;
    }
    StoreGradient(sum, p.scale, p.head_dim, args.dq_before, args.dq, task.b,
                  row, task.head);
  }
}

}  // namespace

void RunPackQTask(const BackwardArgs& args, const FlashTask& task) {
  // Where the words differ, blocks pack tile by tile.
  if (task.f32_words != task.f32_scores) return;
  WithWords(args.problem, task.f32_words, [&](auto words) {
    using Words = decltype(words);
    const Stream<Words, Words> stream(args.problem, QLen(args.problem, task.b),
                                      task.packed);
    stream.from(task.first)
        .Pack(args, task.b, task.head, task.first, task.count);
  });
}

// False once the problem is cancelled.
bool RunSlabBlock(const BackwardArgs& args, const FlashTask& task,
                  const Slab& slab, int64_t first, Scratch& scratch) {
  const int64_t tokens = std::min(task.count, slab.columns.hi - first);
  scratch.Begin();
  scratch.sequence.Pieces(first, tokens, &scratch.pieces);
  if (!Wanted(args, scratch.pieces).any()) return true;
  bool goes_on = false;
  WithWords(args.problem, task.f32_scores, [&](auto score_words) {
    using ScoreWords = decltype(score_words);
    const auto run_block = [&](auto words) {
      const BackwardBlock<ScoreWords, decltype(words)> block(
          args, task, slab, first, tokens, scratch);
      goes_on = block.Run(scratch.sequence.RowsThatSee(scratch.pieces));
    };
    if (task.f32_words) {
      run_block(F32Words());
    } else {
      run_block(score_words);
    }
  });
  return goes_on;
}

bool RunSlabTask(const BackwardArgs& args, const FlashTask& task,
                 absl::Span<const Slab> slabs, Scratch& scratch,
                 absl::FunctionRef<bool()> pause, int64_t& first) {
  const Slab& slab = slabs[task.part];
  scratch.sequence.Reset(args.problem, task.b);
  while (first < slab.columns.hi) {
    if (!RunSlabBlock(args, task, slab, first, scratch)) return true;
    first += task.count;
    if (first < slab.columns.hi && pause()) return false;
  }
  return true;
}

void RunSumTask(const BackwardArgs& args, const FlashTask& task,
                absl::Span<const Slab> slabs) {
  SumSlabs(args, task, slabs);
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnd::cpu {

HWY_EXPORT(RunPackQTask);
HWY_EXPORT(RunSlabTask);
HWY_EXPORT(RunSumTask);

void RunFlashPackQ(const BackwardArgs& args, const FlashTask& task) {
  HWY_DYNAMIC_DISPATCH(RunPackQTask)(args, task);
}

bool RunFlashSlab(const BackwardArgs& args, const FlashTask& task,
                  absl::Span<const Slab> slabs, Scratch& scratch,
                  absl::FunctionRef<bool()> pause, int64_t& first) {
  return HWY_DYNAMIC_DISPATCH(RunSlabTask)(args, task, slabs, scratch, pause,
                                           first);
}

void RunFlashSum(const BackwardArgs& args, const FlashTask& task,
                 absl::Span<const Slab> slabs) {
  HWY_DYNAMIC_DISPATCH(RunSumTask)(args, task, slabs);
}

}  // namespace attnd::cpu
#endif  // HWY_ONCE
