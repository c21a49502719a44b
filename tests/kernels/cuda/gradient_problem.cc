#include "tests/kernels/cuda/gradient_problem.h"

#include <cstddef>
#include <random>
#include <type_traits>
#include <utility>

#include "kernels/reference/reference.h"

namespace attnd::testing {

GradientProblem::GradientProblem(uint32_t seed, const DenseShape& s)
    : forward(seed, s),
      d_o(s.dtype, s.batch, s.q_len, s.q_heads, s.dim),
      delta(s.batch, s.q_heads, s.q_len),
      d_lse(s.batch, s.q_heads, s.q_len) {
  std::mt19937 random(seed + 1);
  std::normal_distribution<double> normal;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.q_heads; ++h) {
      for (int64_t i = 0; i < s.q_len; ++i) {
        for (int64_t d = 0; d < s.dim; ++d) {
          d_o.Set(b, i, h, d, normal(random));
        }
        d_lse.Set(b, h, i, normal(random));
      }
    }
  }
  args.problem = forward.args.problem;
  out.segments.assign(problem().kv.begin(), problem().kv.end());
  problem().kv = out.segments;
  args.d_o = std::as_const(d_o).view();
  args.o = std::as_const(forward.o).view();
  args.lse = std::as_const(forward.lse).view();
  SetOutputs(s.dtype, s.dtype, s.dtype);
}

void GradientProblem::SetOutputs(std::optional<DType> dq,
                                 std::optional<DType> dk,
                                 std::optional<DType> dv) {
  const OwnedTensor &q = forward.q, &k = forward.k;
  const auto make = [](const std::optional<DType>& type, const OwnedTensor& t) {
    return type.has_value()
               ? OwnedTensor(*type, t.batch(), t.tokens(), t.heads(), t.dim())
               : OwnedTensor();
  };
  out.dq = make(dq, q);
  out.dk.clear();
  out.dv.clear();
  out.dk.push_back(make(dk, k));
  out.dv.push_back(make(dv, k));
  args.dq = out.dq.view();
  segment().dk = out.dk[0].view();
  segment().dv = out.dv[0].view();
}

void GradientProblem::PoisonOutputs() {
  for (OwnedTensor* t : {&out.dq, &out.dk[0], &out.dv[0]}) t->Poison();
}

BackwardArgs GradientProblem::Into(
    RandomProblem::BackwardOutputs& other) const {
  other = out;
  BackwardArgs into = args;
  into.dq = other.dq.view();
  other.segments[0].dk = other.dk[0].view();
  other.segments[0].dv = other.dv[0].view();
  into.problem.kv = other.segments;
  for (OwnedTensor* t : {&other.dq, &other.dk[0], &other.dv[0]}) t->Poison();
  return into;
}

std::vector<std::vector<uint8_t>> GradientProblem::Bits() const {
  return {out.dq.bytes(), out.dk[0].bytes(), out.dv[0].bytes()};
}

void GradientProblem::Solve() {
  const Problem& p = problem();
  const reference::ExactForward exact = reference::OracleForward(p);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      for (int64_t i = 0; i < QLen(p, b); ++i) {
        forward.lse.Set(b, h, i, exact.lse[(b * p.q_heads + h) * p.q_len + i]);
        const double* o =
            &exact.o[((b * p.q_len + i) * p.q_heads + h) * p.value_dim];
        double sum = 0;
        for (int64_t d = 0; d < p.value_dim; ++d) {
          forward.o.Set(b, i, h, d, o[d]);
          sum += forward.o.Get(b, i, h, d) * d_o.Get(b, i, h, d);
        }
        delta.Set(b, h, i, sum);
      }
    }
  }
}

::testing::AssertionResult GradientProblem::IsAccurate() const {
  return CheckGradients(args, out, Slack::kApproximations);
}

KvSegment Cut(const KvSegment& segment, int64_t first, int64_t len) {
  KvSegment cut = segment;
  cut.len = len;
  cut.positions.start += first * segment.positions.stride;
  const auto move = [first](auto& view) {
    if (!view) return;
    using Byte = std::conditional_t<
        std::is_const_v<std::remove_pointer_t<decltype(view.data)>>,
        const std::byte, std::byte>;
    view.data = static_cast<Byte*>(view.data) +
                first * view.token_stride * SizeOf(view.dtype);
  };
  move(cut.k);
  move(cut.v);
  move(cut.dk);
  move(cut.dv);
  return cut;
}

}  // namespace attnd::testing
