#include "kernels/cpu/words_choice.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/words_choice.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they compile once per target.
#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/in_place_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {

// Whether any of `count` rows of `dim` bf16, `stride` elements apart, has an
// element that is not 0 but below 2^-51.
bool AnyTiny(const uint16_t* rows, int64_t stride, int64_t count, int64_t dim) {
  // Without its sign and less one, so that 0 is the largest.
  constexpr uint16_t kLeast = 2 * ((127 - 51) << 7) - 1;
  const hn::ScalableTag<uint16_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, uint16_t{1});
  auto least = hn::Set(d, kLeast);
  uint16_t least_rest = kLeast;
  for (int64_t r = 0; r < count; ++r) {
    const uint16_t* row = rows + r * stride;
    int64_t i = 0;
    for (; i + lanes <= dim; i += lanes) {
      const auto x = hn::LoadU(d, row + i);
      least = hn::Min(least, hn::Sub(hn::Add(x, x), one));
    }
    for (; i < dim; ++i) {
      least_rest = std::min<uint16_t>(least_rest, 2 * row[i] - 1);
    }
  }
  return least_rest < kLeast ||
         !hn::AllTrue(d, hn::Eq(least, hn::Set(d, kLeast)));
}

// Whether forward packs no words of the problem: it reads all rows in place,
// as f32.
bool PacksNoWords(const Problem& p) {
  return ReadsInPlace(p, p.group() * p.q_len);
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <atomic>
#include <cmath>
#include <vector>

#include "kernels/cpu/flash.h"

namespace attnd::cpu {
namespace {

HWY_EXPORT(AnyTiny);
HWY_EXPORT(PacksNoWords);

// dQ and dK are off by the scale times what dS lost, below 2^-126.
constexpr float kMostScale = 0x1p16f;

// Less is looked through by one thread sooner.
constexpr int64_t kInlineBytes = 1 << 20;

struct Choice {
  std::atomic<bool> f32_scores = false, f32_words = false;
};

// A sequence's tokens of a kv head, and of the q heads that share it.
struct Part {
  int64_t problem, b, kv_head;
  Choice* choice;
};

// Whether any row of heads [head, head + heads) has a tiny number.
bool AnyTinyOf(const ConstTensorView& view, int64_t b, int64_t head,
               int64_t heads, int64_t tokens, int64_t dim) {
  const bool one_run = view.token_stride == dim;
  for (int64_t h = head; h < head + heads; ++h) {
    const auto* rows = reinterpret_cast<const uint16_t*>(RowAt(view, b, 0, h));
    if (one_run ? HWY_DYNAMIC_DISPATCH(AnyTiny)(rows, 0, 1, tokens * dim)
                : HWY_DYNAMIC_DISPATCH(AnyTiny)(rows, view.token_stride, tokens,
                                                dim)) {
      return true;
    }
  }
  return false;
}

bool AnyTinyInput(const Problem& p, const Part& part) {
  const int64_t b = part.b;
  if (AnyTinyOf(p.q, b, part.kv_head * p.group(), p.group(), QLen(p, b),
                p.head_dim)) {
    return true;
  }
  return std::any_of(p.kv.begin(), p.kv.end(), [&](const KvSegment& s) {
    return AnyTinyOf(s.k, b, part.kv_head, 1, KvLen(s, b), p.head_dim) ||
           AnyTinyOf(s.v, b, part.kv_head, 1, KvLen(s, b), p.value_dim);
  });
}

void Look(const ForwardArgs& args, const Part& part) {
  if (part.choice->f32_words || !AnyTinyInput(args.problem, part)) return;
  part.choice->f32_scores = part.choice->f32_words = true;
}

void Look(const BackwardArgs& args, const Part& part) {
  const Problem& p = args.problem;
  if (!part.choice->f32_scores && AnyTinyInput(p, part)) {
    part.choice->f32_scores = part.choice->f32_words = true;
  }
  if (!part.choice->f32_words &&
      AnyTinyOf(args.d_o, part.b, part.kv_head * p.group(), p.group(),
                QLen(p, part.b), p.value_dim)) {
    part.choice->f32_words = true;
  }
}

bool NeedsNoWords(const ForwardArgs& args) {
  return HWY_DYNAMIC_DISPATCH(PacksNoWords)(args.problem);
}
bool NeedsNoWords(const BackwardArgs&) { return false; }

constexpr Op OpOf(const ForwardArgs&) { return Op::kForward; }
constexpr Op OpOf(const BackwardArgs&) { return Op::kBackward; }

// What there is to look through.
template <class Args>
struct Search {
  std::vector<int64_t> first;   // choice of each problem's sequence 0, or -1
  std::vector<Choice> choices;  // by sequence
  std::vector<Part> parts;
  int64_t bytes = 0;

  explicit Search(absl::Span<const Args> group) {
    int64_t sequences = 0;
    for (const Args& args : group) {
      const Problem& p = args.problem;
      const bool wanted = p.dtype() == DType::kBF16 &&
                          HasOutputs(OpOf(args), p) && !NeedsNoWords(args);
      first.push_back(wanted ? sequences : -1);
      if (wanted) sequences += p.batch;
    }
    choices = std::vector<Choice>(sequences);
    for (size_t i = 0; i < group.size(); ++i) {
      if (first[i] >= 0) AddParts(group[i].problem, static_cast<int64_t>(i));
    }
  }

  void AddParts(const Problem& p, int64_t problem) {
    for (int64_t b = 0; b < p.batch; ++b) {
      Choice* choice = &choices[first[problem] + b];
      if (!(std::abs(p.scale) <= kMostScale)) {
        choice->f32_scores = choice->f32_words = true;
        continue;
      }
      for (int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
        parts.push_back({problem, b, kv_head, choice});
      }
      bytes += 2 * (p.head_dim + p.value_dim) *
               (p.q_heads * QLen(p, b) + p.kv_heads * KvLen(p, b));
    }
  }
};

template <class Args>
void Choose(absl::Span<const Args> group, ThreadPool& pool, FlashPlan& plan) {
  if (!FlashDotsBF16()) return;
  Search<Args> search(group);
  const auto look = [&](int64_t i, int) {
    const Part& part = search.parts[i];
    Look(group[part.problem], part);
  };
  const int64_t count = static_cast<int64_t>(search.parts.size());
  if (search.bytes <= kInlineBytes) {
    for (int64_t i = 0; i < count; ++i) look(i, 0);
  } else {
    pool.ParallelFor({count}, /*help=*/true, look);
  }
  for (FlashWave& wave : plan.waves) {
    for (std::vector<FlashTask>& turn : wave.turns) {
      for (FlashTask& task : turn) {
        const int64_t first = search.first[task.problem];
        if (first < 0) continue;
        task.f32_scores = search.choices[first + task.b].f32_scores;
        task.f32_words = search.choices[first + task.b].f32_words;
      }
    }
  }
}

}  // namespace

void ChooseWords(absl::Span<const ForwardArgs> group, ThreadPool& pool,
                 FlashPlan& plan) {
  Choose(group, pool, plan);
}

void ChooseWords(absl::Span<const BackwardArgs> group, ThreadPool& pool,
                 FlashPlan& plan) {
  Choose(group, pool, plan);
}

}  // namespace attnd::cpu
#endif  // HWY_ONCE
