#include "tests/service_fuzz/exchange.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/service_fuzz/entries.h"
#include "tests/service_fuzz/random.h"

namespace attnd::fuzz {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(120);

// Calls run(i) for the place of every row within its sequence's length.
template <class Run>
void ForEachRow(const FuzzProblem& p, Run run) {
  int64_t first = 0;
  const int64_t total = p.RowShape().back();
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      for (int64_t t = 0; t < p.QLenOf(b); ++t) {
        run(p.packed() ? h * total + first + t
                       : (b * p.q_heads + h) * p.q_len + t,
            b, t, h);
      }
    }
    first += p.QLenOf(b);
  }
}

// rowsum(d_o * o)
Buffer DeltaOf(const FuzzProblem& p, const Buffer& o) {
  Buffer delta(DType::kF32, p.RowShape());
  std::vector<double> sums;
  ForEachToken(p, true, p.q_heads, p.value_dim,
               [&](int64_t, int64_t, int64_t, int64_t i) {
                 double sum = 0;
                 for (int64_t d = 0; d < p.value_dim; ++d)
                   sum += p.d_o.Get(i + d) * o.Get(i + d);
                 sums.push_back(sum);
               });
  // Tokens come sequence by sequence, token by token, head by head.
  std::vector<int64_t> first(p.batch, 0);
  for (int64_t b = 1; b < p.batch; ++b)
    first[b] = first[b - 1] + p.QLenOf(b - 1) * p.q_heads;
  ForEachRow(p, [&](int64_t i, int64_t b, int64_t t, int64_t h) {
    delta.Set(i, sums[first[b] + t * p.q_heads + h]);
  });
  return delta;
}

template <class Call>
void SetInputs(const FuzzProblem& p, Call& call) {
  call.q = p.q.in();
  call.k = p.k.in();
  call.v = p.v.in();
  call.bias = p.bias.in();
  call.attention = p.attention;
  call.algorithm = p.algorithm;
  call.plan = p.plan;
}

Outcome Failed(const char* call, const absl::Status& status) {
  if (absl::IsUnimplemented(status)) return {Outcome::kUnimplemented, ""};
  return {Outcome::kWrong, absl::StrCat(call, " ended ", status.ToString())};
}

Outcome Judged(const char* call, const client::Report& report,
               const Verdict& verdict) {
  if (verdict.empty()) return {};
  return {Outcome::kWrong,
          absl::StrCat(call, " (", report.kernel, "): ", verdict)};
}

// By the kernel, as a team's device does not say what its members are.
Arithmetic ArithmeticOf(Op op, const FuzzProblem& p,
                        const client::Report& report) {
  return Owed(op, p,
              absl::StartsWith(report.kernel, "cpu/")
                  ? Arithmetic::Cpu()
                  : Arithmetic::Gpu(p.dtype()));
}

// What backward owes for an LSE that a forward by several devices gave. Each
// rounds it once more, and has scores of its own columns by a kernel for that
// many.
void AddMerges(const client::Report& forward, Arithmetic& arithmetic) {
  if (!forward.plan.has_value() || !Merges(forward.plan->plan)) return;
  arithmetic.lse *= static_cast<double>(forward.plan->devices.size());
  arithmetic.other_sums = true;
}

}  // namespace

ForwardBuffers MakeForwardBuffers(const FuzzProblem& p) {
  ForwardBuffers out;
  if (p.want_o) out.o = Buffer(p.o_dtype, p.TokenShape(true, p.value_dim));
  if (p.want_lse) out.lse = Buffer(DType::kF32, p.RowShape());
  return out;
}

Gradients MakeGradients(const FuzzProblem& p) {
  Gradients out;
  if (p.want_dq) out.dq = Buffer(p.dq_dtype, p.q.shape);
  if (p.want_dk) out.dk = Buffer(p.dk_dtype, p.k.shape);
  if (p.want_dv) out.dv = Buffer(p.dv_dtype, p.v.shape);
  return out;
}

Upstream MakeUpstream(const FuzzProblem& p, const ForwardBuffers& forward) {
  Upstream up;
  up.own_lse = forward.lse;
  up.lse = Buffer(DType::kF32, p.RowShape());
  Random random(~p.seed, p.index);
  ForEachRow(p, [&](int64_t i, int64_t, int64_t, int64_t) {
    double lse = forward.lse.Get(i);
    // Of a row that sees nothing here other columns may have something.
    if (p.larger)
      lse = lse == -HUGE_VAL ? random.Normal() : lse + random.Real(0, 3);
    up.lse.Set(i, lse);
  });
  if (p.give_delta) {
    up.delta = DeltaOf(p, forward.o);
    return up;
  }
  up.o = Buffer(p.o_dtype, forward.o.shape);
  ForEachToken(p, true, p.q_heads, p.value_dim,
               [&](int64_t, int64_t, int64_t, int64_t i) {
                 for (int64_t d = 0; d < p.value_dim; ++d)
                   up.o.Set(i + d, forward.o.Get(i + d));
               });
  return up;
}

Outcome Exchange(client::Client& client, const FuzzProblem& p) {
  ForwardBuffers forward = MakeForwardBuffers(p);
  client::ForwardCall call;
  SetInputs(p, call);
  call.o = forward.o.out();
  call.lse = forward.lse.out();
  const auto report = client.Forward(call, {kTimeout});
  if (!report.ok()) return Failed("forward", report.status());
  const Verdict verdict = JudgeForward(p, forward.o, forward.lse,
                                       ArithmeticOf(Op::kForward, p, *report));
  if (!verdict.empty() || !p.backward)
    return Judged("forward", *report, verdict);

  const Upstream up = MakeUpstream(p, forward);
  Gradients gradients = MakeGradients(p);
  client::BackwardCall back;
  SetInputs(p, back);
  back.d_o = p.d_o.in();
  back.lse = up.lse.in();
  back.o = up.o.in();
  back.delta = up.delta.in();
  back.d_lse = p.d_lse.in();
  back.deterministic = p.deterministic;
  back.dq = gradients.dq.out();
  back.dk = gradients.dk.out();
  back.dv = gradients.dv.out();
  const auto backward = client.Backward(back, {kTimeout});
  if (!backward.ok()) return Failed("backward", backward.status());
  Arithmetic arithmetic = ArithmeticOf(Op::kBackward, p, *backward);
  AddMerges(*report, arithmetic);
  return Judged("backward", *backward,
                JudgeBackward(p, up, gradients, arithmetic));
}

}  // namespace attnd::fuzz
