#include "tests/bench/gpu/plan/plan_side.h"

#include <cmath>

#include "kernels/plan/cost.h"
#include "kernels/plan/make_plan.h"
#include "tests/bench/clock.h"
#include "tests/bench/require.h"

namespace attnd::bench {
namespace {

// [batch, len, heads, dim], bf16.
ConstTensorView View(const std::byte* data, const Shape& shape, int64_t heads) {
  const int64_t token = heads * shape.dim;
  return {data, DType::kBF16, shape.len * token, token, shape.dim};
}

TensorView MutableView(std::byte* data, const Shape& shape, int64_t heads) {
  const ConstTensorView view = View(data, shape, heads);
  return {data, view.dtype, view.batch_stride, view.token_stride,
          view.head_stride};
}

Problem ProblemOf(const Shape& shape, const HostTensors& tensors) {
  Problem p;
  p.batch = shape.batch;
  p.q_len = shape.len;
  p.q_heads = shape.q_heads;
  p.kv_heads = shape.kv_heads;
  p.head_dim = p.value_dim = shape.dim;
  p.q = View(tensors.q(), shape, shape.q_heads);
  p.mask.causal = shape.causal;
  p.mask.left = shape.left;
  p.scale = 1 / std::sqrt(static_cast<float>(shape.dim));
  return p;
}

}  // namespace

PlanSide::PlanSide(const What& what, const std::vector<Backend*>& devices,
                   const HostTensors& tensors, const Outputs& outputs,
                   Crew& crew)
    : what_(what), crew_(crew) {
  options_.deterministic = what.deterministic;
  options_.plan = what.kind;
  MakeGroup(tensors, outputs);
  const Backend& first = *devices.front();
  request_ = what.op == Op::kForward
                 ? plan::Describe(group_.forward, options_, first)
                 : plan::Describe(group_.backward, options_, first);
  request_.sections = what.sections;
  request_.gathered = what.gathered;
  plan_ = plan::MakePlan(request_, static_cast<int>(devices.size()));
  for (Backend* device : devices) {
    members_.push_back(Get(ReplayMember::Create(*device)));
    streams_.push_back(members_.back().get());
  }
  Load();
}

void PlanSide::MakeGroup(const HostTensors& tensors, const Outputs& outputs) {
  const Shape& shape = what_.shape;
  const int64_t lse_head = shape.len, lse_batch = shape.q_heads * shape.len;
  Problem problem = ProblemOf(shape, tensors);
  segment_.len = shape.len;
  segment_.k = View(tensors.k(), shape, shape.kv_heads);
  segment_.v = View(tensors.v(), shape, shape.kv_heads);
  problem.kv = {&segment_, 1};
  if (what_.op == Op::kForward) {
    ForwardArgs args;
    args.problem = problem;
    args.o = MutableView(outputs.o, shape, shape.q_heads);
    args.lse = {reinterpret_cast<float*>(outputs.lse), lse_batch, lse_head};
    group_.forward.push_back(args);
    return;
  }
  segment_.dk = MutableView(outputs.dk, shape, shape.kv_heads);
  segment_.dv = MutableView(outputs.dv, shape, shape.kv_heads);
  BackwardArgs args;
  args.problem = problem;
  args.d_o = View(tensors.d_o(), shape, shape.q_heads);
  args.o = View(tensors.reference().o, shape, shape.q_heads);
  args.lse = {reinterpret_cast<const float*>(tensors.reference().lse),
              lse_batch, lse_head};
  args.dq = MutableView(outputs.dq, shape, shape.q_heads);
  group_.backward.push_back(args);
}

void PlanSide::Begin() {
  run_.emplace(request_, plan_, group_, options_, streams_, 0);
  Require(run_->Allocate());
}

void PlanSide::Load() {
  Begin();
  for (const auto& member : members_) Require(member->Poison());
  Require(run_->Run(crew_, PlanRun::Stage::kLoad));
  Wait();
  for (const auto& member : members_) Require(member->KeepLoads());
}

PlanSide::Times PlanSide::Run() {
  // All of the team is idle before any of its memory changes.
  for (const auto& member : members_) Require(member->Poison());
  for (const auto& member : members_) member->Reset();
  Begin();
  Require(run_->Run(crew_, PlanRun::Stage::kLoad));
  Times times;
  const double start = Seconds();
  Require(run_->Run(crew_, PlanRun::Stage::kCompute));
  times.enqueue_seconds = Seconds() - start;
  times.kernel_seconds = Wait();
  times.seconds = Seconds() - start;
  return times;
}

void PlanSide::Store() {
  Require(run_->Run(crew_, PlanRun::Stage::kStore));
  Wait();
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
