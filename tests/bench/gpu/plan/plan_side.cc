#include "tests/bench/gpu/plan/plan_side.h"

#include <cmath>

#include "kernels/plan/cost.h"
#include "kernels/plan/make_plan.h"
#include "tests/bench/clock.h"
#include "tests/bench/require.h"

namespace attnd::bench {
namespace {

// [batch, len, heads, dim], bf16.
template <typename Void, typename Byte>
BasicTensorView<Void> View(Byte* data, int64_t len, int64_t heads,
                           int64_t dim) {
  return {data, DType::kBF16, len * heads * dim, heads * dim, dim};
}

ConstTensorView Rows(const std::byte* data, const Shape& shape) {
  return View<const void>(data, shape.len, shape.q_heads, shape.dim);
}
TensorView MutableRows(std::byte* data, const Shape& shape) {
  return View<void>(data, shape.len, shape.q_heads, shape.dim);
}
ConstTensorView Columns(const std::byte* data, const Shape& shape) {
  return View<const void>(data, shape.columns(), shape.kv_heads, shape.dim);
}
TensorView MutableColumns(std::byte* data, const Shape& shape) {
  return View<void>(data, shape.columns(), shape.kv_heads, shape.dim);
}

Problem ProblemOf(const Shape& shape, const HostTensors& tensors) {
  Problem p;
  p.batch = shape.batch;
  p.q_len = shape.len;
  p.q_heads = shape.q_heads;
  p.kv_heads = shape.kv_heads;
  p.head_dim = p.value_dim = shape.dim;
  p.q = Rows(tensors.q(), shape);
  p.q_lens = shape.lens;
  p.mask.causal = shape.causal;
  p.mask.left = shape.left;
  p.scale = 1 / std::sqrt(static_cast<float>(shape.dim));
  return p;
}

}  // namespace

PlanSide::PlanSide(const What& what, const std::vector<Backend*>& devices,
                   const HostTensors& tensors, const Outputs& outputs,
                   Crew& crew)
    : what_(what), devices_(devices), crew_(crew) {
  options_.deterministic = what.deterministic;
  options_.plan = what.kind;
  MakeGroup(tensors, outputs);
  const Backend& first = *devices.front();
  request_ = what.op == Op::kForward
                 ? plan::Describe(group_.forward, options_, first)
                 : plan::Describe(group_.backward, options_, first);
  request_.sections = what.sections;
  request_.gathered = what.gathered;
  request_.inputs = what.inputs;
  if (what.rates.has_value()) request_.rates = *what.rates;
  request_.transport = what.transport;
  request_.phases = what.phases;
  plan_ = plan::MakePlan(request_, static_cast<int>(devices.size()));
}

void PlanSide::MakeGroup(const HostTensors& tensors, const Outputs& outputs) {
  const Shape& shape = what_.shape;
  const int64_t lse_head = shape.len, lse_batch = shape.q_heads * shape.len;
  Problem problem = ProblemOf(shape, tensors);
  segment_.len = shape.columns();
  segment_.lens = shape.lens;
  segment_.k = Columns(tensors.k(), shape);
  segment_.v = Columns(tensors.v(), shape);
  problem.kv = {&segment_, 1};
  if (what_.op == Op::kForward) {
    ForwardArgs args;
    args.problem = problem;
    args.o = MutableRows(outputs.o, shape);
    args.lse = {reinterpret_cast<float*>(outputs.lse), lse_batch, lse_head};
    group_.forward.push_back(args);
    return;
  }
  segment_.dk = MutableColumns(outputs.dk, shape);
  segment_.dv = MutableColumns(outputs.dv, shape);
  BackwardArgs args;
  args.problem = problem;
  args.d_o = Rows(tensors.d_o(), shape);
  args.o = Rows(tensors.reference().o, shape);
  args.lse = {reinterpret_cast<const float*>(tensors.reference().lse),
              lse_batch, lse_head};
  args.dq = MutableRows(outputs.dq, shape);
  group_.backward.push_back(args);
}

void PlanSide::Begin() {
  run_.emplace(request_, plan_, group_, options_, streams_, 0);
  Require(run_->Allocate());
}

void PlanSide::Load() {
  for (Backend* device : devices_) {
    members_.push_back(Get(ReplayMember::Create(*device)));
    streams_.push_back(members_.back().get());
  }
  Begin();
  if (is_on_host()) return;
  for (const auto& member : members_) Require(member->Poison());
  Require(run_->Run(crew_, PlanRun::Stage::kLoad));
  Wait();
  for (const auto& member : members_) Require(member->KeepLoads());
}

PlanSide::Times PlanSide::Run() {
  if (members_.empty()) Load();
  // All of the team is idle before any of its memory changes.
  for (const auto& member : members_) Require(member->Poison());
  for (const auto& member : members_) member->Reset();
  Begin();
  std::optional<PlanRun::Stage> timed;  // all of them
  if (!is_on_host()) {
    Require(run_->Run(crew_, PlanRun::Stage::kLoad));
    timed = PlanRun::Stage::kCompute;
  }
  Times times;
  const double start = Seconds();
  Require(run_->Run(crew_, timed));
  times.enqueue_seconds = Seconds() - start;
  times.kernel_seconds = Wait();
  times.seconds = Seconds() - start;
  return times;
}

void PlanSide::RunFor(const Turn& turn,
                      absl::FunctionRef<void(const Times& times)> take) {
  const double begin = Seconds();
  for (int runs = 0;
       runs < turn.settling || Seconds() < begin + turn.settle_seconds;
       ++runs) {
    Run();
  }
  const double settled = Seconds();
  for (int runs = 0;
       runs < turn.timed || Seconds() < settled + turn.timed_seconds; ++runs) {
    take(Run());
  }
}

void PlanSide::Store() {
  if (!is_on_host()) {
    Require(run_->Run(crew_, PlanRun::Stage::kStore));
    Wait();
  }
  FillPadding(group_);
}

std::vector<double> PlanSide::Wait() {
  std::vector<double> seconds;
  for (const auto& member : members_) {
    seconds.push_back(absl::ToDoubleSeconds(Get(member->Wait()).compute));
  }
  return seconds;
}

double PlanSide::flops() const {
  double flops = 0;
  for (const plan::SequenceShape& sequence : request_.sequences) {
    flops += plan::FlopsOf(request_, sequence);
  }
  return flops;
}

int64_t PlanSide::pulled_bytes() const {
  int64_t bytes = 0;
  for (const auto& member : members_) bytes += member->pulled_bytes();
  return bytes;
}

int64_t PlanSide::pulls() const {
  int64_t pulls = 0;
  for (const auto& member : members_) pulls += member->pulls();
  return pulls;
}

std::vector<int64_t> PlanSide::allocated_bytes() const {
  std::vector<int64_t> bytes;
  for (const auto& member : members_) {
    bytes.push_back(member->allocated_bytes());
  }
  return bytes;
}

int64_t PlanSide::planned_bytes() const {
  int64_t bytes = 0;
  for (const plan::PlanCost::Device& device : plan_.cost.devices) {
    bytes += device.pulled_bytes;
  }
  return bytes;
}

}  // namespace attnd::bench
