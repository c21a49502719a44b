#include "kernels/team/plan_run.h"

#include <utility>
#include <variant>

#include "absl/container/inlined_vector.h"
#include "kernels/plan/cost.h"

namespace attnd {
namespace {

// Calls send(copy) for one after the other, until one fails.
template <class Send>
absl::Status SendEach(absl::Span<const BlockCopy> copies, Send send) {
  absl::Status status;
  for (const BlockCopy& copy : copies) {
    status = send(copy);
    if (!status.ok()) break;
  }
  return status;
}

}  // namespace

PlanRun::PlanRun(const plan::PlanRequest& request, const plan::Plan& plan,
                 const Group& group, const GroupOptions& options,
                 absl::Span<MemberStream* const> streams, int first_point)
    : request_(request),
      plan_(plan),
      group_(group),
      tensors_(request, plan, group),
      options_(options),
      streams_(streams),
      first_point_(first_point),
      board_(plan.steps.size()) {
  FindPoints();
}

PlanRun::Stage PlanRun::StageOf(const plan::Step& step) {
  if (std::holds_alternative<plan::Upload>(step.what)) return Stage::kLoad;
  if (std::holds_alternative<plan::Download>(step.what)) return Stage::kStore;
  return Stage::kCompute;
}

PlanRun::Queue PlanRun::QueueOf(const plan::Step& step) {
  if (std::holds_alternative<plan::Upload>(step.what)) return Queue::kUpload;
  if (std::holds_alternative<plan::Pull>(step.what)) return Queue::kPull;
  if (std::holds_alternative<plan::Download>(step.what)) {
    return Queue::kDownload;
  }
  return Queue::kCompute;
}

// Whether a step comes after another of its device by itself: pulls may
// overlap, and so may kernels.
bool PlanRun::FollowsByItself(const plan::Step& step,
                              const plan::Step& before) {
  const Queue queue = QueueOf(step);
  return before.device == step.device && QueueOf(before) == queue &&
         queue != Queue::kPull && queue != Queue::kCompute;
}

void PlanRun::FindPoints() {
  is_point_.resize(plan_.steps.size());
  for (const plan::Step& step : plan_.steps) {
    for (int other : step.after) {
      if (!FollowsByItself(step, plan_.steps[other])) is_point_[other] = true;
    }
  }
}

absl::Status PlanRun::Allocate() {
  std::vector<std::byte*> all;
  all.reserve(plan_.buffers.size());
  const std::vector<int64_t> bytes = plan::MemoryBytes(request_, plan_);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const plan::Buffer& buffer = plan_.buffers[i];
    if (buffer.reuses.has_value()) {
      all.push_back(all[*buffer.reuses]);
      continue;
    }
    absl::StatusOr<std::byte*> memory =
        streams_[buffer.device]->Allocate(bytes[i]);
    if (!memory.ok()) {
      failed_ = buffer.device;
      return memory.status();
    }
    all.push_back(*memory);
  }
  tensors_.set_memory(std::move(all));
  return absl::OkStatus();
}

absl::Status PlanRun::Run(Crew& crew, std::optional<Stage> stage) {
  std::vector<absl::Status> statuses(plan_.devices);
  crew.Run(plan_.devices, [&](int device) {
    statuses[device] = RunDevice(device, stage);
    if (!statuses[device].ok()) board_.Stop();
  });
  failed_ = -1;
  absl::Status status;
  for (int device = 0; device < plan_.devices; ++device) {
    // Who gave up because of another says CANCELLED.
    if (statuses[device].ok()) continue;
    if (status.ok() || absl::IsCancelled(status)) {
      status = statuses[device];
      failed_ = absl::IsCancelled(status) ? -1 : device;
    }
  }
  return status;
}

absl::Status PlanRun::RunDevice(int device, std::optional<Stage> stage) {
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    const plan::Step& step = plan_.steps[i];
    if (step.device != device) continue;
    if (stage.has_value() && StageOf(step) != *stage) continue;
    if (board_.stopped() || IsCancelled(group_)) {
      return absl::CancelledError("cancelled");
    }
    absl::Status status = RunStep(static_cast<int>(i));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status PlanRun::RunStep(int index) {
  const plan::Step& step = plan_.steps[index];
  absl::Status status = AwaitOthers(index);
  if (status.ok()) status = Enqueue(step.device, step);
  if (status.ok() && is_point_[index]) {
    status = streams_[step.device]->Record(QueueOf(step), first_point_ + index);
  }
  if (status.ok()) board_.Post(index);
  return status;
}

absl::Status PlanRun::AwaitOthers(int index) {
  const plan::Step& step = plan_.steps[index];
  for (int other : step.after) {
    if (!board_.Await(other)) return absl::CancelledError("cancelled");
    const plan::Step& before = plan_.steps[other];
    if (FollowsByItself(step, before)) continue;
    absl::Status status = streams_[step.device]->Await(
        QueueOf(step), *streams_[before.device], first_point_ + other);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status PlanRun::Enqueue(int device, const plan::Step& step) {
  return std::visit(
      [&](const auto& what) { return this->Enqueue(device, what); }, step.what);
}

absl::Status PlanRun::Enqueue(int device, const plan::Upload& upload) {
  std::vector<BlockCopy> copies;
  tensors_.AddCopies(upload.to, upload.slice, tensors_.Host(upload.to),
                     tensors_.Buffer(upload.to), copies);
  return SendEach(copies, [&](const BlockCopy& copy) {
    return streams_[device]->Upload(copy);
  });
}

absl::Status PlanRun::Enqueue(int device, const plan::Download& download) {
  std::vector<BlockCopy> copies;
  tensors_.AddCopies(download.from, download.slice,
                     tensors_.Buffer(download.from),
                     tensors_.Host(download.from), copies);
  return SendEach(copies, [&](const BlockCopy& copy) {
    return streams_[device]->Download(copy);
  });
}

absl::Status PlanRun::Enqueue(int device, const plan::Pull& pull) {
  std::vector<BlockCopy> copies;
  for (const plan::Pull::Item& item : pull.items) {
    tensors_.AddCopies(item.to, item.slice, tensors_.Buffer(item.from),
                       tensors_.Buffer(item.to), copies);
  }
  return streams_[device]->PullAll(*streams_[pull.peer], copies);
}

absl::Status PlanRun::Enqueue(int device, const plan::Dot& dot) {
  return streams_[device]->Dot(tensors_.Dots(dot));
}

absl::Status PlanRun::Enqueue(int device, const plan::Sum& sum) {
  absl::InlinedVector<BlockSum::Term, 8> terms;
  for (int buffer : sum.terms) terms.push_back(tensors_.TermOf(sum, buffer));
  BlockSum block = tensors_.SumWithoutTerms(sum);
  block.terms = terms;
  return streams_[device]->Sum(block);
}

absl::Status PlanRun::Enqueue(int device, const plan::Merge& merge) {
  absl::InlinedVector<RowState, 8> terms;
  for (const plan::State& term : merge.terms) {
    terms.push_back(tensors_.StateOf(term, merge.slice));
  }
  RowMerges merges = tensors_.MergeWithoutTerms(merge);
  merges.terms = terms;
  return streams_[device]->Merge(merges);
}

absl::Status PlanRun::Enqueue(int device, const plan::Compute& compute) {
  // Problems point to their segments, which must not move.
  std::vector<std::vector<KvSegment>> segments(compute.parts.size());
  std::vector<ForwardArgs> forward;
  std::vector<BackwardArgs> backward;
  for (size_t i = 0; i < compute.parts.size(); ++i) {
    const plan::Part& part = compute.parts[i];
    if (request_.op == Op::kForward) {
      forward.push_back(tensors_.Forward(part, segments[i]));
    } else {
      backward.push_back(tensors_.Backward(part, segments[i]));
    }
  }
  return request_.op == Op::kForward
             ? streams_[device]->Forward(forward, options_)
             : streams_[device]->Backward(backward, options_);
}

}  // namespace attnd
