#include "tests/bench/study/ring/accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/float16.h"
#include "kernels/plan/cuts.h"
#include "kernels/reference/reference.h"
#include "kernels/team/crew.h"
#include "tests/bench/gpu/plan/host_tensors.h"
#include "tests/bench/gpu/plan/plan_side.h"
#include "tests/bench/require.h"
#include "tests/bench/study/ring/partials.h"

namespace attnd::bench {
namespace {

using plan::Run;
using plan::Runs;

// One result: what one device has, what another run has, and float64's.
struct Result {
  TensorId tensor;
  const char* name;
  const std::byte *reference, *got;
  const std::vector<double>* exact;

  bool is_lse() const { return tensor == TensorId::kLse; }
};

struct Errors {
  double largest = 0, sum = 0;  // of differences from one device's
  double squares = 0, reference_squares = 0;  // of those from float64's
  int64_t count = 0;

  void Add(double got, double reference, double exact) {
    const double difference = std::abs(got - reference);
    largest = std::max(largest, difference);
    sum += difference;
    squares += (got - exact) * (got - exact);
    reference_squares += (reference - exact) * (reference - exact);
    ++count;
  }

  std::string Json() const {
    const double n = static_cast<double>(std::max<int64_t>(count, 1));
    return absl::StrFormat(
        "\"max\": %.6g, \"mean\": %.6g, \"rms\": %.6g, \"one_rms\": %.6g",
        largest, sum / n, std::sqrt(squares / n),
        std::sqrt(reference_squares / n));
  }
};

class Accuracy {
 public:
  Accuracy(const RingStudyOptions& options, int len, const Devices& devices)
      : options_(options),
        shape_(options.shape(len)),
        devices_(devices),
        crew_(static_cast<int>(devices.size())),
        tensors_(devices.front()->host_memory(), shape_.elements(),
                 shape_.rows()) {
    for (const auto& device : devices) all_.push_back(device.get());
  }

  void Run() {
    ComputeAlone(Op::kForward);
    for (const Op op : options_.ops) {
      if (op == Op::kBackward) ComputeAlone(op);
      ComputeExactly(op);
      for (const PlanKind kind : options_.plans) {
        if (kind != PlanKind::kOneDevice) RunPlan(op, kind);
      }
      if (!devices_.front()->device().shares_host_memory) continue;
      RunPartials(op, DType::kBF16, "bf16");
      RunPartials(op, DType::kF32, "f32");
    }
  }

 private:
  PlanSide::What What(Op op, PlanKind kind) const {
    return {.shape = shape_, .op = op, .kind = kind};
  }

  void ComputeAlone(Op op) {
    PlanSide alone(What(op, PlanKind::kHeads), {all_.front()}, tensors_,
                   tensors_.reference(), crew_);
    alone.Run();
    alone.Store();
  }

  ConstTensorView View(const std::byte* data) const {
    const int64_t token = shape_.q_heads * shape_.dim;
    return {data, DType::kBF16, shape_.len * token, token, shape_.dim};
  }

  void ComputeExactly(Op op) {
    KvSegment segment;
    segment.k = View(tensors_.k());
    segment.v = View(tensors_.v());
    segment.len = shape_.len;
    Problem problem;
    problem.batch = shape_.batch;
    problem.q_len = shape_.len;
    problem.q_heads = problem.kv_heads = shape_.q_heads;
    problem.head_dim = problem.value_dim = shape_.dim;
    problem.q = View(tensors_.q());
    problem.kv = {&segment, 1};
    problem.mask.causal = shape_.causal;
    problem.scale = 1 / std::sqrt(static_cast<float>(shape_.dim));
    if (op == Op::kForward) {
      exact_forward_ = reference::OracleForward(problem);
      return;
    }
    BackwardArgs args;
    args.problem = problem;
    args.d_o = View(tensors_.d_o());
    args.o = View(tensors_.reference().o);
    args.lse = {reinterpret_cast<const float*>(tensors_.reference().lse),
                shape_.q_heads * shape_.len, shape_.len};
    exact_backward_ = reference::OracleBackward(args);
  }

  std::vector<Result> Results(Op op) const {
    const Outputs &reference = tensors_.reference(), &got = tensors_.got();
    if (op == Op::kForward) {
      return {
          {TensorId::kO, "o", reference.o, got.o, &exact_forward_.o},
          {TensorId::kLse, "lse", reference.lse, got.lse, &exact_forward_.lse}};
    }
    return {
        {TensorId::kDQ, "dq", reference.dq, got.dq, &exact_backward_.dq},
        {TensorId::kDK, "dk", reference.dk, got.dk, &exact_backward_.dk[0]},
        {TensorId::kDV, "dv", reference.dv, got.dv, &exact_backward_.dv[0]}};
  }

  void Poison() const {
    const Outputs& got = tensors_.got();
    for (std::byte* output : {got.o, got.dq, got.dk, got.dv}) {
      FillWithNan(output, 2 * shape_.elements());
    }
    FillWithNan(got.lse, 4 * shape_.rows());
  }

  void RunPlan(Op op, PlanKind kind) {
    Poison();
    PlanSide side(What(op, kind), all_, tensors_, tensors_.got(), crew_);
    side.Run();
    side.Store();
    const std::string memory = absl::StrFormat(
        ", \"planned_bytes\": [%s], \"allocated_bytes\": [%s], "
        "\"planned_pulls\": %d, \"copied_bytes\": %d",
        absl::StrJoin(side.plan().cost.devices, ", ",
                      [](std::string* out, const plan::PlanCost::Device& cost) {
                        absl::StrAppend(out, cost.memory_bytes);
                      }),
        absl::StrJoin(side.allocated_bytes(), ", "), side.planned_bytes(),
        side.pulled_bytes());
    Print(op, PlanName(kind), PlanName(side.plan().kind), "f32", memory,
          [&](TensorId tensor) { return Owned(side.plan(), tensor); });
  }

  void RunPartials(Op op, DType partial, const char* name) {
    Poison();
    const int count = static_cast<int>(devices_.size());
    const auto stream = Get(devices_.front()->NewStream());
    (op == Op::kForward ? ForwardOfPartials : BackwardOfPartials)(
        *stream, shape_, count, partial, tensors_);
    Print(op, "blocks", "blocks", name, "",
          [&](TensorId) { return plan::CutEvenly(shape_.len, count, {}); });
  }

  // By device, the tokens of which it sends the result to the host.
  static std::vector<Runs> Owned(const plan::Plan& plan, TensorId tensor) {
    std::vector<Runs> runs(plan.devices);
    for (const plan::Step& step : plan.steps) {
      const auto* download = std::get_if<plan::Download>(&step.what);
      if (download == nullptr ||
          plan.buffers[download->from].tensor != tensor) {
        continue;
      }
      Runs& of = runs[step.device];
      const plan::Run& run = download->slice.tokens;
      // Other heads of the same tokens.
      if (std::find(of.begin(), of.end(), run) == of.end()) of.push_back(run);
    }
    return runs;
  }

  Errors ErrorsOf(const Result& result, const Runs& runs) const {
    Errors errors;
    for (const plan::Run& run : runs) {
      for (int64_t i = 0; i < run.count; ++i) {
        Add(result, run.first + i * run.step, errors);
      }
    }
    return errors;
  }

  void Add(const Result& result, int64_t token, Errors& errors) const {
    if (result.is_lse()) {
      for (int64_t head = 0; head < shape_.q_heads; ++head) {
        const int64_t at = head * shape_.len + token;
        errors.Add(reinterpret_cast<const float*>(result.got)[at],
                   reinterpret_cast<const float*>(result.reference)[at],
                   (*result.exact)[at]);
      }
      return;
    }
    const auto* const got = reinterpret_cast<const uint16_t*>(result.got);
    const auto* const reference =
        reinterpret_cast<const uint16_t*>(result.reference);
    const int64_t elements = shape_.q_heads * shape_.dim;
    for (int64_t at = token * elements; at < (token + 1) * elements; ++at) {
      errors.Add(BF16ToFloat(got[at]), BF16ToFloat(reference[at]),
                 (*result.exact)[at]);
    }
  }

  // Results are NaN before a run, and nothing that is computed is.
  absl::Status Written(Op op, absl::string_view plan,
                       const Result& result) const {
    Errors errors;
    for (int64_t token = 0; token < shape_.len; ++token) {
      Add(result, token, errors);
    }
    if (std::isfinite(errors.sum)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(OpName(op), " of ", plan, ": ",
                                            result.name,
                                            " is not finite everywhere"));
  }

  template <class OwnedRuns>
  void Print(Op op, absl::string_view plan, absl::string_view ran_as,
             const char* partials, const std::string& memory,
             OwnedRuns owned) const {
    std::vector<std::string> tensors;
    for (const Result& result : Results(op)) {
      std::vector<std::string> ranks;
      Runs every;
      Require(Written(op, plan, result));
      for (const Runs& runs : owned(result.tensor)) {
        ranks.push_back(absl::StrCat("{", ErrorsOf(result, runs).Json(), "}"));
        every.insert(every.end(), runs.begin(), runs.end());
      }
      tensors.push_back(absl::StrFormat("\"%s\": {\"ranks\": [%s], %s}",
                                        result.name, absl::StrJoin(ranks, ", "),
                                        ErrorsOf(result, every).Json()));
    }
    absl::PrintF(
        "{\"plan\": \"%s\", \"ran_as\": \"%s\", \"partials\": \"%s\", "
        "\"op\": \"%s\", \"devices\": %d, \"device\": \"%s\", \"len\": %d, "
        "\"heads\": %d, \"dim\": %d, \"causal\": %s, \"tensors\": {%s}%s}\n",
        plan, ran_as, partials, OpName(op), devices_.size(),
        devices_.front()->device().name, shape_.len, shape_.q_heads, shape_.dim,
        shape_.causal ? "true" : "false", absl::StrJoin(tensors, ", "), memory);
    std::fflush(stdout);
  }

  const RingStudyOptions& options_;
  const Shape shape_;
  const Devices& devices_;
  std::vector<Backend*> all_;
  Crew crew_;
  const HostTensors tensors_;
  reference::ExactForward exact_forward_;
  reference::ExactBackward exact_backward_;
};

}  // namespace

void PrintAccuracy(const RingStudyOptions& options, const Devices& devices) {
  for (const int len : options.lens) Accuracy(options, len, devices).Run();
}

}  // namespace attnd::bench
