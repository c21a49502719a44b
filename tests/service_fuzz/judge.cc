#include "tests/service_fuzz/judge.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "tests/kernels/accuracy.h"
#include "tests/service_fuzz/entries.h"
#include "tests/service_fuzz/estimate.h"

namespace attnd::fuzz {
namespace {

// Beyond, rounding gives an infinity, or saturates.
double Largest(DType dtype) { return dtype == DType::kF16 ? 65504 : 3.389e38; }

// What a type rounds by, at most: half the distance to the next value.
double Rounding(DType dtype, double value) {
  const double least = dtype == DType::kF32   ? 0x1p-150
                       : dtype == DType::kF16 ? 0x1p-25
                                              : 0x1p-134;
  return std::max(least, testing::RoundingUnit(dtype) * std::abs(value));
}

// A tensor [batch, tokens, heads, dim] of one of the kernels' problems.
struct Judged {
  const char* name;
  ConstTensorView got;
  int64_t batch, tokens, heads, dim;
  bool is_finite = false;  // whatever its size

  double Get(int64_t b, int64_t t, int64_t h, int64_t d) const {
    return LoadElement(
        got.data, got.dtype,
        b * got.batch_stride + t * got.token_stride + h * got.head_stride + d);
  }
};

// The worst element by how many times its bound it is off.
Verdict JudgeElements(const Judged& t, const Estimate& estimate) {
  double worst = 1;
  Verdict verdict;
  int64_t at = 0;
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t i = 0; i < t.tokens; ++i) {
      for (int64_t h = 0; h < t.heads; ++h) {
        for (int64_t d = 0; d < t.dim; ++d, ++at) {
          const double got = t.Get(b, i, h, d), exact = estimate.value[at];
          const double error = estimate.error[at];
          const double most = std::abs(exact) + error;
          if (std::isfinite(exact) && most > Largest(t.got.dtype) &&
              !t.is_finite)
            continue;
          const double bound =
              exact == 0 && error == 0
                  ? 0
                  : 1.001 * (error + Rounding(t.got.dtype, most));
          // Equal infinities are 0 apart.
          const double off = got == exact ? 0 : std::abs(got - exact);
          const double times = std::isnan(off) ? HUGE_VAL
                               : off <= bound  ? 0
                               : bound == 0    ? HUGE_VAL
                                               : off / bound;
          if (times < worst || !(times > 0)) continue;
          worst = times;
          verdict =
              absl::StrCat(t.name, "[sequence ", b, ", token ", i, ", head ", h,
                           ", ", d, "] is ", got, ", expected ", exact,
                           ", off by ", off, ", bound ", bound);
          if (std::isinf(times)) return verdict;
        }
      }
    }
  }
  return verdict;
}

// Whether errors follow what they are errors of, as those of a wrong factor do,
// though each be smaller than a rounding of a 16-bit output: by the part of
// each token's error that lies along it, which varies from token to token, and
// in whose mean nothing but a trend should be left.
Verdict JudgeTrend(const Judged& t, const Estimate& estimate) {
  constexpr double kDeviations = 8, kLeast = 5e-5, kTokens = 32;
  std::vector<double> along, squares;
  double sum = 0, square = 0, fourth = 0, least = 0;
  int64_t at = 0;
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t i = 0; i < t.tokens; ++i) {
      for (int64_t h = 0; h < t.heads; ++h) {
        double a = 0, s = 0;
        for (int64_t d = 0; d < t.dim; ++d, ++at) {
          const double exact = estimate.value[at];
          a += (t.Get(b, i, h, d) - exact) * exact;
          s += exact * exact;
          least += Rounding(t.got.dtype, 0) * std::abs(exact);
        }
        along.push_back(a);
        squares.push_back(s);
        sum += a;
        square += s;
        fourth += s * s;
      }
    }
  }
  if (!(fourth > 0) || !std::isfinite(fourth)) return "";
  // As many as would count if all counted alike.
  if (square * square < kTokens * fourth) return "";
  const double trend = sum / square;
  double variance = 0;
  for (size_t i = 0; i < along.size(); ++i) {
    const double rest = along[i] - trend * squares[i];
    variance += rest * rest;
  }
  const double bound =
      kLeast + (kDeviations * std::sqrt(variance) + least) / square;
  if (std::abs(trend) <= bound) return "";
  return absl::StrCat(t.name, " is off by a factor of 1 + ", trend,
                      " all over, bound ", bound);
}

testing::Slack SlackOf(const Arithmetic& arithmetic) {
  return arithmetic.roundings > 1 ? testing::Slack::kApproximations
                                  : testing::Slack::kRoundings;
}

std::vector<double> Values(const Judged& t) {
  std::vector<double> values;
  for (int64_t b = 0; b < t.batch; ++b)
    for (int64_t i = 0; i < t.tokens; ++i)
      for (int64_t h = 0; h < t.heads; ++h)
        for (int64_t d = 0; d < t.dim; ++d) values.push_back(t.Get(b, i, h, d));
  return values;
}

// LSE and its kin as a tensor of one token.
ConstTensorView AsTokens(const ConstRowView& rows) {
  return {rows.data, DType::kF32, rows.batch_stride, 0, rows.head_stride};
}

// Whether errors are many and independent, so that the largest of one
// computation is no more than twice the largest of another. `rows` is how many
// have any: a mask may leave a few, and few columns to each.
bool HasStatistics(const FuzzProblem& fuzz, const Problem& p, int64_t rows) {
  constexpr int64_t kTokens = 16, kRows = 128, kDim = 8;
  if (rows < kRows) return false;
  for (int64_t b = 0; b < p.batch; ++b)
    if (QLen(p, b) < kTokens || KvLen(p, b) < kTokens) return false;
  return fuzz.ordinary && fuzz.algorithm == client::Algorithm::kAuto &&
         p.head_dim >= kDim && p.value_dim >= kDim;
}

Verdict Prefixed(const Verdict& verdict, const FuzzProblem& fuzz, size_t n) {
  if (verdict.empty() || !fuzz.packed()) return verdict;
  return absl::StrCat("packed sequence ", n, ": ", verdict);
}

}  // namespace

namespace {

// Whether all of a tensor is so small that its products with ordinary numbers
// may be below the least normal number of f32, or a scale brings such back.
bool IsTiny(Op op, const FuzzProblem& problem) {
  constexpr double kLeast = 0x1p-51, kMostScale = 0x1p16;
  for (const Buffer* t : {&problem.q, &problem.k, &problem.v})
    if (Most(*t) < kLeast) return true;
  if (op == Op::kBackward && Most(problem.d_o) < kLeast) return true;
  return std::abs(problem.attention.scale.value_or(1)) > kMostScale;
}

}  // namespace

Arithmetic Owed(Op op, const FuzzProblem& problem, Arithmetic device) {
  if (problem.algorithm != client::Algorithm::kAuto)
    device.slope = 8 * kF32Unit;
  if (problem.algorithm == client::Algorithm::kNaive) {
    device.p_of_1 = true;
    // On a GPU forward is by cuBLAS, and dQ is no sum in memory.
    device.other_sums = device.on_gpu && problem.deterministic;
    device.least_of_dq = device.least;
  }
  if (problem.alike) device.addition = 1;
  // A CPU's products of bf16 take what is below the least normal number as 0;
  // they owe more where inputs are made of such numbers.
  if (device.takes_subnormals_as_0 && problem.dtype() == DType::kBF16 &&
      !IsTiny(op, problem))
    device.least = kF32Normal;
  return device;
}

Verdict JudgeForward(const FuzzProblem& fuzz, const Buffer& o,
                     const Buffer& lse, const Arithmetic& arithmetic) {
  const Problems problems(fuzz);
  for (size_t n = 0; n < problems.size(); ++n) {
    const Problem& p = problems[n];
    const ForwardEstimate estimate = EstimateForward(p, arithmetic);
    std::vector<double> o_values, lse_values;
    if (lse) {
      const Judged t{"lse",
                     AsTokens(problems.Rows(n, lse)),
                     p.batch,
                     1,
                     p.q_heads,
                     p.q_len,
                     /*is_finite=*/true};
      if (Verdict v = JudgeElements(t, estimate.lse); !v.empty())
        return Prefixed(v, fuzz, n);
      lse_values = Values(t);
    }
    if (o) {
      const Judged t{"o",       problems.Tokens(n, o, true),
                     p.batch,   p.q_len,
                     p.q_heads, p.value_dim};
      if (Verdict v = JudgeElements(t, estimate.o); !v.empty())
        return Prefixed(v, fuzz, n);
      if (fuzz.spread && HasStatistics(fuzz, p, estimate.rows))
        if (Verdict v = JudgeTrend(t, estimate.o); !v.empty())
          return Prefixed(v, fuzz, n);
      o_values = Values(t);
    }
    if (!HasStatistics(fuzz, p, estimate.rows)) continue;
    const auto result = testing::CheckResults(p, o.dtype, o_values, lse_values,
                                              SlackOf(arithmetic));
    if (!result) return Prefixed(result.message(), fuzz, n);
  }
  return "";
}

namespace {

// As CheckGradients takes it.
testing::OwnedTensor Owned(const Judged& t) {
  testing::OwnedTensor owned(t.got.dtype, t.batch, t.tokens, t.heads, t.dim);
  for (int64_t b = 0; b < t.batch; ++b)
    for (int64_t i = 0; i < t.tokens; ++i)
      for (int64_t h = 0; h < t.heads; ++h)
        for (int64_t d = 0; d < t.dim; ++d)
          owned.Set(b, i, h, d, t.Get(b, i, h, d));
  return owned;
}

}  // namespace

Verdict JudgeBackward(const FuzzProblem& fuzz, const Upstream& upstream,
                      const Gradients& gradients,
                      const Arithmetic& arithmetic) {
  const Problems problems(fuzz);
  for (size_t n = 0; n < problems.size(); ++n) {
    const Problem& p = problems[n];
    if (p.q_len == 0 && p.kv[0].len == 0) continue;
    BackwardArgs args;
    args.problem = p;
    args.d_o = problems.Tokens(n, fuzz.d_o, true);
    args.lse = problems.Rows(n, upstream.lse);
    if (upstream.o) args.o = problems.Tokens(n, upstream.o, true);
    if (upstream.delta) args.delta = problems.Rows(n, upstream.delta);
    if (fuzz.d_lse) args.d_lse = problems.Rows(n, fuzz.d_lse);
    const BackwardEstimate estimate =
        EstimateBackward(args, problems.Rows(n, upstream.own_lse), arithmetic);
    testing::RandomProblem::BackwardOutputs owned;
    owned.dk.resize(1);
    owned.dv.resize(1);
    const auto judge = [&](const char* name, const Buffer& got, bool of_q,
                           int64_t dim, const Estimate& expected,
                           testing::OwnedTensor& values) -> Verdict {
      if (!got) return "";
      const Judged t{name,
                     problems.Tokens(n, got, of_q),
                     p.batch,
                     of_q ? p.q_len : p.kv[0].len,
                     of_q ? p.q_heads : p.kv_heads,
                     dim};
      values = Owned(t);
      Verdict v = JudgeElements(t, expected);
      if (v.empty() && fuzz.spread && HasStatistics(fuzz, p, estimate.rows))
        v = JudgeTrend(t, expected);
      return Prefixed(v, fuzz, n);
    };
    Verdict v =
        judge("dv", gradients.dv, false, p.value_dim, estimate.dv, owned.dv[0]);
    if (!v.empty()) return v;
    if (estimate.overflows) continue;
    v = judge("dq", gradients.dq, true, p.head_dim, estimate.dq, owned.dq);
    if (!v.empty()) return v;
    v = judge("dk", gradients.dk, false, p.head_dim, estimate.dk, owned.dk[0]);
    if (!v.empty()) return v;
    if (!HasStatistics(fuzz, p, estimate.rows)) continue;
    const auto result =
        testing::CheckGradients(args, owned, SlackOf(arithmetic));
    if (!result) return Prefixed(result.message(), fuzz, n);
  }
  return "";
}

}  // namespace attnd::fuzz
