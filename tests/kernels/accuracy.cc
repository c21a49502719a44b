#include "tests/kernels/accuracy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/magnitudes.h"

namespace attnd::testing {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

constexpr double kF32Unit = 0x1p-24;

struct Error {
  double max = 0, rms = 0;
};

// Errors above what `allowed` gives each element anyway.
Error Measure(absl::Span<const double> got, absl::Span<const double> exact) {
  Error error;
  int64_t count = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(exact[i])) continue;
    const double e = std::abs(got[i] - exact[i]);
    error.max = std::max(error.max, e);
    error.rms += e * e;
    ++count;
  }
  error.rms = count == 0 ? 0 : std::sqrt(error.rms / count);
  return error;
}

// "dq[17] of 640"
AssertionResult At(size_t i, size_t size) {
  return AssertionFailure() << "element " << i << " of " << size << ": ";
}

}  // namespace

double RoundingUnit(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kF32Unit;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
  }
  return 0;
}

AssertionResult IsAccurate(absl::Span<const double> got,
                           absl::Span<const double> plain,
                           absl::Span<const double> exact, DType dtype,
                           absl::Span<const double> slack) {
  if (got.size() != exact.size() || plain.size() != exact.size())
    return AssertionFailure() << "sizes differ: " << got.size() << ", "
                              << plain.size() << ", " << exact.size();
  const Error reference = Measure(plain, exact);
  // What underflows is off by the smallest subnormal, whatever it was.
  const double tiny = dtype == DType::kF16 ? 0x1p-25 : 0x1p-126;
  double squares = 0, allowed_squares = 0;
  int64_t count = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(exact[i])) {
      if (!(got[i] == exact[i]))
        return At(i, got.size()) << got[i] << ", exactly " << exact[i];
      continue;
    }
    const double error = std::abs(got[i] - exact[i]);
    const double rounding = RoundingUnit(dtype) * std::abs(exact[i]) + tiny +
                            (slack.empty() ? 0 : slack[i]);
    if (!(error <= 2 * reference.max + rounding))
      return At(i, got.size())
             << got[i] << ", exactly " << exact[i] << ", off by " << error
             << "; plain is off by at most " << reference.max
             << ", roundings allow " << rounding;
    squares += error * error;
    allowed_squares += rounding * rounding;
    ++count;
  }
  if (count == 0) return AssertionSuccess();
  const double rms = std::sqrt(squares / count);
  const double allowed =
      1.5 * reference.rms + std::sqrt(allowed_squares / count);
  if (rms <= allowed) return AssertionSuccess();
  return AssertionFailure() << "rms error " << rms << ", plain's "
                            << reference.rms << ", allowed " << allowed;
}

namespace {

// One tensor of a check: where it is named in a failure.
AssertionResult Named(absl::string_view name, const RandomProblem& problem,
                      const AssertionResult& result) {
  if (result) return result;
  return AssertionFailure() << std::string(name) << " " << result.message()
                            << "\n  " << problem.Describe();
}

std::vector<double> Roundings(Slack slack, std::vector<double> magnitudes) {
  if (slack == Slack::kNone) return {};
  const int count = slack == Slack::kApproximations ? 4 : 1;
  for (double& m : magnitudes) m *= count * kF32Unit;
  return magnitudes;
}

AssertionResult CheckTensor(const OwnedTensor& got, const OwnedTensor& plain,
                            const std::vector<double>& exact, Slack slack,
                            const std::vector<double>& magnitudes) {
  if (!got) return AssertionSuccess();
  if (!got.GapsIntact()) return AssertionFailure() << "written between rows";
  return IsAccurate(got.Values(), plain.Values(), exact, got.dtype(),
                    Roundings(slack, magnitudes));
}

// Rows of [batch, tokens, heads, dim] that must be exactly 0.
template <typename IsEmpty>
AssertionResult CheckZeros(const OwnedTensor& t, IsEmpty is_empty) {
  if (!t) return AssertionSuccess();
  for (int64_t b = 0; b < t.batch(); ++b)
    for (int64_t i = 0; i < t.tokens(); ++i)
      for (int64_t h = 0; h < t.heads(); ++h)
        for (int64_t d = 0; d < t.dim(); ++d)
          if (is_empty(b, i, h) && t.Get(b, i, h, d) != 0)
            return AssertionFailure()
                   << "must be 0 at sequence " << b << " token " << i
                   << " head " << h << ", is " << t.Get(b, i, h, d);
  return AssertionSuccess();
}

}  // namespace

AssertionResult CheckResults(const Problem& p, DType o_dtype,
                             absl::Span<const double> o,
                             absl::Span<const double> lse, Slack slack) {
  OwnedTensor plain_o;
  if (!o.empty())
    plain_o = OwnedTensor(o_dtype, p.batch, p.q_len, p.q_heads, p.value_dim);
  OwnedRows plain_lse(p.batch, p.q_heads, p.q_len);
  if (absl::Status s = reference::Forward({p, plain_o.view(), plain_lse.view()},
                                          Algorithm::kNaive);
      !s.ok())
    return AssertionFailure() << s;
  const auto exact = reference::OracleForward(p);
  reference::ExactForward magnitudes;
  if (slack != Slack::kNone) magnitudes = ForwardMagnitudes(p);
  if (!o.empty()) {
    const AssertionResult result =
        IsAccurate(o, plain_o.Values(), exact.o, o_dtype,
                   Roundings(slack, std::move(magnitudes.o)));
    if (!result) return AssertionFailure() << "o " << result.message();
  }
  for (size_t i = 0; i < o.size(); ++i) {
    const int64_t row = i / p.value_dim, h = row % p.q_heads;
    const int64_t token = row / p.q_heads, b = token / p.q_len;
    const int64_t at = (b * p.q_heads + h) * p.q_len + token % p.q_len;
    if (std::isinf(exact.lse[at]) && o[i] != 0)
      return AssertionFailure()
             << "o must be 0 at sequence " << b << " token " << token % p.q_len
             << " head " << h << ", is " << o[i];
  }
  if (lse.empty()) return AssertionSuccess();
  const AssertionResult result =
      IsAccurate(lse, plain_lse.Values(), exact.lse, DType::kF32,
                 Roundings(slack, std::move(magnitudes.lse)));
  if (!result) return AssertionFailure() << "lse " << result.message();
  return AssertionSuccess();
}

AssertionResult CheckForward(const RandomProblem& problem, const ForwardFn& run,
                             Slack slack) {
  auto got = problem.MakeForwardOutputs();
  if (absl::Status s = run(problem.Forward(got)); !s.ok())
    return AssertionFailure() << s << "\n  " << problem.Describe();
  const auto values = [](const auto& t) {
    return t ? t.Values() : std::vector<double>();
  };
  AssertionResult result = AssertionFailure() << "written between rows";
  if ((!got.o || got.o.GapsIntact()) && (!got.lse || got.lse.GapsIntact()))
    result = CheckResults(problem.problem(), got.o.dtype(), values(got.o),
                          values(got.lse), slack);
  return Named("forward:", problem, result);
}

namespace {

// Of the same shape and type.
OwnedTensor Like(const OwnedTensor& t) {
  return t ? OwnedTensor(t.dtype(), t.batch(), t.tokens(), t.heads(), t.dim())
           : OwnedTensor();
}

// What the plain computation gives, in the types of `got`.
absl::Status RunPlain(const BackwardArgs& args,
                      const RandomProblem::BackwardOutputs& got,
                      RandomProblem::BackwardOutputs& plain) {
  plain.dq = Like(got.dq);
  plain.segments.assign(args.problem.kv.begin(), args.problem.kv.end());
  plain.dk.resize(plain.segments.size());
  plain.dv.resize(plain.segments.size());
  for (size_t n = 0; n < plain.segments.size(); ++n) {
    plain.dk[n] = Like(got.dk[n]);
    plain.dv[n] = Like(got.dv[n]);
    plain.segments[n].dk = plain.dk[n].view();
    plain.segments[n].dv = plain.dv[n].view();
  }
  BackwardArgs into = args;
  into.problem.kv = plain.segments;
  into.dq = plain.dq.view();
  return reference::Backward(into, Algorithm::kNaive);
}

AssertionResult Named(const std::string& name, const AssertionResult& result) {
  if (result) return result;
  return AssertionFailure() << name << " " << result.message();
}

}  // namespace

AssertionResult CheckGradients(const BackwardArgs& args,
                               const RandomProblem::BackwardOutputs& got,
                               Slack slack) {
  const Problem& p = args.problem;
  RandomProblem::BackwardOutputs plain;
  if (absl::Status s = RunPlain(args, got, plain); !s.ok())
    return AssertionFailure() << s;
  const auto exact = reference::OracleBackward(args);
  const auto magnitudes = BackwardMagnitudes(args);
  const auto hidden = [&](int64_t b, int64_t i, int64_t h) {
    return i >= QLen(p, b) ||
           args.lse.data[b * args.lse.batch_stride + h * args.lse.head_stride +
                         i] == -HUGE_VALF;
  };
  AssertionResult result = Named(
      "dq", CheckTensor(got.dq, plain.dq, exact.dq, slack, magnitudes.dq));
  if (result) result = Named("dq", CheckZeros(got.dq, hidden));
  for (size_t n = 0; n < p.kv.size() && result; ++n) {
    const auto past = [&](int64_t b, int64_t t, int64_t) {
      return t >= KvLen(p.kv[n], b);
    };
    const std::string dk = absl::StrCat("dk of segment ", n);
    const std::string dv = absl::StrCat("dv of segment ", n);
    result = Named(dk, CheckTensor(got.dk[n], plain.dk[n], exact.dk[n], slack,
                                   magnitudes.dk[n]));
    if (result)
      result = Named(dv, CheckTensor(got.dv[n], plain.dv[n], exact.dv[n], slack,
                                     magnitudes.dv[n]));
    if (result) result = Named(dk, CheckZeros(got.dk[n], past));
    if (result) result = Named(dv, CheckZeros(got.dv[n], past));
  }
  return result;
}

AssertionResult CheckBackward(const RandomProblem& problem,
                              const BackwardFn& run, Slack slack) {
  auto got = problem.MakeBackwardOutputs();
  const BackwardArgs args = problem.Backward(got);
  if (absl::Status s = run(args); !s.ok())
    return AssertionFailure() << s << "\n  " << problem.Describe();
  return Named("backward:", problem, CheckGradients(args, got, slack));
}

}  // namespace attnd::testing
