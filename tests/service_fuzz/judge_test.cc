// What the judge says of right answers, and of answers that are wrong by
// little: computed here, so that nothing but the judge is tested.

#include "tests/service_fuzz/judge.h"

#include <cfloat>
#include <cmath>
#include <functional>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "kernels/reference/head.h"
#include "kernels/reference/reference.h"
#include "tests/service_fuzz/entries.h"
#include "tests/service_fuzz/exchange.h"
#include "tests/service_fuzz/generate.h"
#include "tests/service_fuzz/random.h"
#include "tests/thinned.h"

namespace attnd::fuzz {
namespace {

TensorView Writable(const ConstTensorView& view) {
  return {const_cast<void*>(view.data), view.dtype, view.batch_stride,
          view.token_stride, view.head_stride};
}

// FlashAttention-2 as its paper gives it, in f32.
ForwardBuffers ComputeForward(const FuzzProblem& fuzz) {
  ForwardBuffers out = MakeForwardBuffers(fuzz);
  const Problems problems(fuzz);
  for (size_t n = 0; n < problems.size(); ++n) {
    ForwardArgs args;
    args.problem = problems[n];
    if (out.o) args.o = Writable(problems.Tokens(n, out.o, true));
    if (out.lse) {
      const ConstRowView rows = problems.Rows(n, out.lse);
      args.lse = {const_cast<float*>(rows.data), rows.batch_stride,
                  rows.head_stride};
    }
    EXPECT_TRUE(reference::Forward(args, Algorithm::kFlashAttention2).ok());
  }
  return out;
}

Gradients ComputeBackward(const FuzzProblem& fuzz, const Upstream& up) {
  Gradients out = MakeGradients(fuzz);
  const Problems problems(fuzz);
  for (size_t n = 0; n < problems.size(); ++n) {
    KvSegment segment = problems[n].kv[0];
    BackwardArgs args;
    args.problem = problems[n];
    args.problem.kv = {&segment, 1};
    args.d_o = problems.Tokens(n, fuzz.d_o, true);
    args.lse = problems.Rows(n, up.lse);
    if (up.o) args.o = problems.Tokens(n, up.o, true);
    if (up.delta) args.delta = problems.Rows(n, up.delta);
    if (fuzz.d_lse) args.d_lse = problems.Rows(n, fuzz.d_lse);
    if (out.dq) args.dq = Writable(problems.Tokens(n, out.dq, true));
    if (out.dk) segment.dk = Writable(problems.Tokens(n, out.dk, false));
    if (out.dv) segment.dv = Writable(problems.Tokens(n, out.dv, false));
    EXPECT_TRUE(reference::Backward(args, Algorithm::kFlashAttention2).ok());
  }
  return out;
}

// With the reference's slope of softcap.
Arithmetic OfReference(const FuzzProblem& p) {
  Arithmetic arithmetic = Owed(Op::kBackward, p, Arithmetic::Cpu());
  arithmetic.slope = 8 * kF32Unit;
  return arithmetic;
}

Verdict JudgeForward(const FuzzProblem& p, const ForwardBuffers& out) {
  return JudgeForward(p, out.o, out.lse, OfReference(p));
}

// Whether anything is computed at all.
bool HasPairs(const FuzzProblem& p) {
  const Problems problems(p);
  for (size_t n = 0; n < problems.size(); ++n) {
    for (double lse : reference::OracleForward(problems[n]).lse)
      if (std::isfinite(lse)) return true;
  }
  return false;
}

constexpr uint64_t kSeed = 20;
constexpr Limits kSmall = {
    .max_tokens = 300, .usual_work = 100'000, .most_work = 300'000};

// Runs the first `count` problems whose entries are independent and of ordinary
// size, which is where a small mistake has an effect of a known size.
void ForOrdinaryProblems(
    int count, const std::function<void(const FuzzProblem&)>& run,
    const std::function<bool(const FuzzProblem&)>& choose =
        [](const FuzzProblem&) { return true; }) {
  for (uint64_t k = 0; count > 0; ++k) {
    const FuzzProblem p = Generate(kSeed, k, kSmall);
    if (!p.ordinary || !p.backward || !choose(p) || !HasPairs(p)) continue;
    --count;
    run(p);
  }
}

struct Share {
  int seen = 0, of = 0;
  void Add(const Verdict& verdict) {
    ++of;
    seen += !verdict.empty();
  }
  double value() const { return static_cast<double>(seen) / of; }
  ~Share() { std::cout << "seen: " << seen << " of " << of << "\n"; }
};

TEST(JudgeTest, FindsNothingInRightAnswers) {
  for (uint64_t k = 0; k < 400 / testing::kProblemStep; ++k) {
    const FuzzProblem p = Generate(kSeed, k, kSmall);
    const ForwardBuffers forward = ComputeForward(p);
    ASSERT_EQ(JudgeForward(p, forward), "") << p.Describe();
    if (!p.backward) continue;
    const Upstream up = MakeUpstream(p, forward);
    ASSERT_EQ(JudgeBackward(p, up, ComputeBackward(p, up), OfReference(p)), "")
        << p.Describe();
  }
}

FuzzProblem WithOtherScale(FuzzProblem p) {
  const Problems problems(p);
  p.attention.scale = problems[0].scale * 1.0005f;
  return p;
}

TEST(JudgeTest, SeesAScaleThatIsOffByAHalfOfAThousandthInForward) {
  Share share;
  ForOrdinaryProblems(100, [&](const FuzzProblem& p) {
    share.Add(JudgeForward(p, ComputeForward(WithOtherScale(p))));
  });
  EXPECT_GE(share.value(), 0.9);
}

Verdict OfBackwardWithOtherScale(const FuzzProblem& p) {
  const Upstream up = MakeUpstream(p, ComputeForward(p));
  return JudgeBackward(p, up, ComputeBackward(WithOtherScale(p), up),
                       OfReference(p));
}

TEST(JudgeTest, SeesAScaleThatIsOffByAHalfOfAThousandthInBackward) {
  Share share;
  ForOrdinaryProblems(
      50, [&](const FuzzProblem& p) { share.Add(OfBackwardWithOtherScale(p)); },
      [](const FuzzProblem& p) { return p.dtype() == DType::kF32; });
  EXPECT_GE(share.value(), 0.9);
}

// Causal self-attention, of normal entries.
FuzzProblem Usual(DType dtype, uint64_t index) {
  FuzzProblem p;
  p.seed = kSeed;
  p.index = index;
  p.batch = 1;
  p.q_len = p.kv_len = 128;
  p.q_heads = p.kv_heads = 2;
  p.head_dim = p.value_dim = 64;
  p.attention.mask.causal = true;
  p.ordinary = p.spread = p.backward = true;
  p.o_dtype = p.dq_dtype = p.dk_dtype = p.dv_dtype = dtype;
  Random random(kSeed, index);
  const auto fill = [&](bool of_q) {
    return Fill(p, of_q, dtype, 64, Entries::kNormal, 1, random);
  };
  p.q = fill(true);
  p.k = fill(false);
  p.v = fill(false);
  p.d_o = fill(true);
  return p;
}

// Each gradient is off by less than a rounding; it takes many to see that all
// are.
TEST(JudgeTest, SeesAScaleThatIsOffByLessThanARoundingInBackward) {
  Share share;
  for (uint64_t k = 0; k < 10; ++k)
    for (DType dtype : {DType::kF16, DType::kBF16})
      share.Add(OfBackwardWithOtherScale(Usual(dtype, k)));
  EXPECT_EQ(share.value(), 1);
}

// A column that some row sees is hidden from all.
FuzzProblem WithoutAColumn(FuzzProblem p) {
  if (!p.bias) {
    p.bias = Buffer(DType::kF32, {1, 1, p.q_len, p.kv_len});
    for (int64_t i = 0; i < p.bias.size(); ++i) p.bias.Set(i, 0);
  }
  // The last that the last row sees.
  const Problems problems(p);
  int64_t column = 0;
  for (size_t n = 0; n < problems.size(); ++n) {
    const reference::Head<double> head(problems[n], 0, 0);
    std::vector<double> s(head.columns());
    for (int64_t i = 0; i < head.rows(); ++i) {
      head.Scores(i, 0, head.columns(), s.data());
      for (int64_t j = 0; j < head.columns(); ++j)
        if (std::isfinite(s[j])) column = j;
    }
  }
  for (int64_t i = column; i < p.bias.size(); i += p.kv_len)
    p.bias.Set(i, -HUGE_VAL);
  return p;
}

TEST(JudgeTest, SeesAColumnThatIsNotAttendedTo) {
  Share forward, backward;
  ForOrdinaryProblems(100, [&](const FuzzProblem& p) {
    const FuzzProblem other = WithoutAColumn(p);
    forward.Add(JudgeForward(p, ComputeForward(other)));
    const Upstream up = MakeUpstream(p, ComputeForward(p));
    backward.Add(
        JudgeBackward(p, up, ComputeBackward(other, up), OfReference(p)));
  });
  EXPECT_GE(forward.value(), 0.97);
  EXPECT_GE(backward.value(), 0.9);
}

TEST(JudgeTest, SeesTwoRowsSwapped) {
  Share share;
  ForOrdinaryProblems(100, [&](const FuzzProblem& p) {
    ForwardBuffers forward = ComputeForward(p);
    // Rows whose values differ: of the first and the last token that have any.
    const int64_t dim = p.value_dim, rows = forward.o.size() / dim;
    int64_t first = 0, last = rows - 1;
    const auto empty = [&](int64_t row) {
      return forward.o.Get(row * dim) == 0;
    };
    while (first < last && empty(first)) ++first;
    while (first < last && empty(last)) --last;
    if (first == last) return;
    for (int64_t d = 0; d < dim; ++d) {
      const double a = forward.o.Get(first * dim + d);
      forward.o.Set(first * dim + d, forward.o.Get(last * dim + d));
      forward.o.Set(last * dim + d, a);
    }
    share.Add(JudgeForward(p, forward));
  });
  EXPECT_GE(share.value(), 0.9);
}

TEST(JudgeTest, SeesAnOutputOfANarrowerType) {
  Share share;
  ForOrdinaryProblems(200, [&](const FuzzProblem& p) {
    if (p.o_dtype == DType::kBF16) return;
    ForwardBuffers forward = ComputeForward(p);
    const DType narrower =
        p.o_dtype == DType::kF32 ? DType::kF16 : DType::kBF16;
    for (int64_t i = 0; i < forward.o.size(); ++i)
      forward.o.Set(i, RoundTo(narrower, forward.o.Get(i)));
    if (p.dtype() == DType::kF32 || p.o_dtype == p.dtype())
      share.Add(JudgeForward(p, forward));
  });
  EXPECT_GE(share.value(), 0.9);
}

TEST(JudgeTest, SeesAnLseThatIsOffByAThousandth) {
  Share share;
  ForOrdinaryProblems(100, [&](const FuzzProblem& p) {
    ForwardBuffers forward = ComputeForward(p);
    for (int64_t i = 0; i < forward.lse.size(); ++i)
      forward.lse.Set(i, forward.lse.Get(i) * 1.001);
    share.Add(JudgeForward(p, forward));
  });
  EXPECT_GE(share.value(), 0.99);
}

// q . k of one query and one key, of f16, as an H100 had it: without the bits
// of a subnormal q that it loses beside larger products.
TEST(JudgeTest, AllowsTensorCoresButNoCpuToLoseBitsOfSubnormals) {
  FuzzProblem p;
  p.batch = p.q_len = p.kv_len = p.q_heads = p.kv_heads = 1;
  p.head_dim = 4;
  p.value_dim = 1;
  p.attention.scale = -252237.453f;
  p.o_dtype = DType::kF16;
  p.q = p.k = Buffer(DType::kF16, {1, 1, 1, 4});
  p.v = Buffer(DType::kF16, {1, 1, 1, 1});
  p.v.Set(0, 1);
  const double q[] = {-0x1p-24, -0x1p-24, 0x1p-23, 0x1p-24};
  const double k[] = {29168, -205.875, -5212, -15808};
  for (int64_t d = 0; d < 4; ++d) {
    p.q.Set(d, q[d]);
    p.k.Set(d, k[d]);
  }
  ForwardBuffers out = ComputeForward(p);
  const auto judge = [&](const Arithmetic& device) {
    return JudgeForward(p, out.o, out.lse, Owed(Op::kForward, p, device));
  };
  ASSERT_NEAR(out.lse.Get(0), 829.8174, 1e-4);
  EXPECT_EQ(judge(Arithmetic::Cpu()), "");
  EXPECT_EQ(judge(Arithmetic::Gpu(DType::kF16)), "");
  out.lse.Set(0, 829.823);
  EXPECT_EQ(judge(Arithmetic::Gpu(DType::kF16)), "");
  EXPECT_NE(judge(Arithmetic::Cpu()), "");
  out.lse.Set(0, 829.9);
  EXPECT_NE(judge(Arithmetic::Gpu(DType::kF16)), "");
}

// Runs the first `count` problems of scores out of f32's range.
void ForScoresOutOfRange(int count,
                         const std::function<void(const FuzzProblem&)>& run) {
  for (uint64_t k = 0; count > 0; ++k) {
    const FuzzProblem p = Generate(kSeed, k, kSmall);
    if (!absl::StrContains(p.kind, "out of range") || !p.want_lse ||
        !HasPairs(p))
      continue;
    --count;
    run(p);
  }
}

// What comes of scores that are not kept in f32's range.
TEST(JudgeTest, SeesAnLseThatIsInfinite) {
  Share share;
  ForScoresOutOfRange(20, [&](const FuzzProblem& p) {
    ForwardBuffers forward = ComputeForward(p);
    for (int64_t i = 0; i < forward.lse.size(); ++i) {
      const double lse = forward.lse.Get(i);
      if (std::abs(lse) < 3e38 || std::isinf(lse)) continue;
      forward.lse.Set(i, std::copysign(HUGE_VAL, lse));
      share.Add(JudgeForward(p, forward));
      break;
    }
  });
  EXPECT_EQ(share.value(), 1);
}

// Columns whose scores are the largest f32, all of them, have equal parts in O.
TEST(JudgeTest, SeesAColumnOutOfRangeThatIsNotAttendedTo) {
  Share share;
  ForScoresOutOfRange(60, [&](const FuzzProblem& p) {
    if (!p.want_o || p.bias || p.attention.softcap.has_value()) return;
    const Problems problems(p);
    const reference::Head<double> head(problems[0], 0, 0);
    FuzzProblem other = p;
    bool changes = false;
    for (int64_t i = 0; i < head.rows() && !changes; ++i) {
      const ScoreRow row(problems[0], head, i, OfReference(p));
      std::vector<int64_t> top;
      for (int64_t j : row.seen)
        if (row.score[j] >= FLT_MAX) top.push_back(j);
      changes = top.size() > 1 && top.size() < 50;
      if (!changes) continue;
      other.bias = Buffer(DType::kF32, {1, 1, p.q_len, p.kv_len});
      for (int64_t k = 0; k < other.bias.size(); ++k)
        other.bias.Set(k, k == i * p.kv_len + top[0] ? -HUGE_VAL : 0);
    }
    if (changes) share.Add(JudgeForward(p, ComputeForward(other)));
  });
  // Not where V is constant, or the column's part is less than bf16 rounds.
  EXPECT_GE(share.value(), 0.8);
}

TEST(JudgeTest, SeesOneGradientThatIsMissing) {
  Share share;
  ForOrdinaryProblems(100, [&](const FuzzProblem& p) {
    const Upstream up = MakeUpstream(p, ComputeForward(p));
    Gradients gradients = ComputeBackward(p, up);
    for (Buffer* tensor : {&gradients.dq, &gradients.dk, &gradients.dv}) {
      // The middle one of those that are not 0 anyway.
      std::vector<int64_t> there;
      for (int64_t i = 0; i < tensor->size(); ++i)
        if (tensor->Get(i) != 0) there.push_back(i);
      if (there.empty()) continue;
      const int64_t at = there[there.size() / 2];
      const double was = tensor->Get(at);
      tensor->Set(at, 0);
      share.Add(JudgeBackward(p, up, gradients, OfReference(p)));
      tensor->Set(at, was);
    }
  });
  EXPECT_GE(share.value(), 0.9);
}

}  // namespace
}  // namespace attnd::fuzz
