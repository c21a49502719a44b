#include "server/execution/group_run.h"

#include <utility>

#include "server/work/device_name.h"
#include "server/work/request_bytes.h"

namespace attnd::server {
namespace {

// Large enough to cost little each, small enough that copying into staging and
// the bus overlap, and that a cancelled request stops soon.
constexpr size_t kUploadPieceBytes = size_t{4} << 20;

void ReleaseInputs(Work& work) {
  for (int i = 0; i < kTensorIds; ++i) {
    work.inputs[static_cast<TensorId>(i)].clear();
  }
  if (work.release_inputs) std::exchange(work.release_inputs, nullptr)();
}

// Takes spans of up to kUploadPieceBytes in total off the front of `spans`;
// `index` and `offset` say where the front is.
std::vector<ConstHostSpan> NextPiece(const std::vector<ConstHostSpan>& spans,
                                     size_t& index, size_t& offset) {
  std::vector<ConstHostSpan> piece;
  size_t room = kUploadPieceBytes;
  while (room > 0 && index < spans.size()) {
    const ConstHostSpan part = spans[index].subspan(offset, room);
    if (!part.empty()) piece.push_back(part);
    room -= part.size();
    offset += part.size();
    if (offset == spans[index].size()) {
      ++index;
      offset = 0;
    }
  }
  return piece;
}

}  // namespace

GroupRun::GroupRun(const Backend& backend, Stream& stream, OutputPool& pool,
                   std::vector<std::shared_ptr<Work>> works)
    : backend_(backend), stream_(stream), pool_(pool) {
  const RequestSpec& spec = works.front()->request->spec();
  op_ = spec.op;
  options_ = {spec.algorithm, spec.deterministic};
  members_.reserve(works.size());
  for (std::shared_ptr<Work>& work : works) {
    members_.emplace_back().work = std::move(work);
  }
}

absl::Status GroupRun::Execute() {
  absl::Status status;
  for (Member& member : members_) {
    if (status = Load(member); !status.ok()) return status;
    if (member.state == State::kLoaded) ++loaded_;
  }
  if (loaded_ == 0 && !enqueued_) return absl::OkStatus();
  status = Launch(absl::MakeSpan(members_));
  if (!status.ok()) return status;
  if (status = Download(); !status.ok()) return status;
  absl::StatusOr<PhaseTimes> times = stream_.Wait();
  if (!times.ok()) return times.status();
  times_ = *times;
  return absl::OkStatus();
}

// Everything up to the kernel. Fails only when the device is broken.
absl::Status GroupRun::Load(Member& member) {
  const auto fail = [&](absl::Status failure) {
    ReleaseInputs(*member.work);
    member.state = State::kFailed;
    member.failure = std::move(failure);
    return absl::OkStatus();
  };
  const CancelToken& cancel = member.work->cancel;
  if (cancel.cancelled()) return fail(absl::CancelledError("cancelled"));
  absl::Status status = Reserve(member);
  if (absl::IsResourceExhausted(status)) {
    if (loaded_ == 0) return fail(std::move(status));
    member.state = State::kDeferred;
    return absl::OkStatus();
  }
  if (!status.ok()) return status;
  enqueued_ = true;
  if (status = Upload(member); !status.ok()) return status;
  if (cancel.cancelled()) return fail(absl::CancelledError("cancelled"));
  ReleaseInputs(*member.work);
  Bind(member);
  return absl::OkStatus();
}

// Memory for all tensors. RESOURCE_EXHAUSTED: none now.
absl::Status GroupRun::Reserve(Member& member) {
  const Request& request = *member.work->request;
  absl::StatusOr<std::byte*> inputs =
      stream_.Allocate(DeviceInputBytes(request));
  if (!inputs.ok()) return inputs.status();
  std::byte* next = *inputs;
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    if (request.input(id).present) {
      member.memory[id] = next;
      next += AlignedTensorBytes(request.input(id).bytes);
    }
    const Request::Tensor& output = request.output(id);
    if (!output.present) continue;
    member.outputs[id] = pool_.Allocate(output.bytes, member.work->charge);
    if (!member.outputs[id]) {
      return absl::ResourceExhaustedError("no memory for the result");
    }
    absl::StatusOr<std::byte*> mapped =
        stream_.MapOutput(member.outputs[id].span());
    if (!mapped.ok()) return mapped.status();
    member.memory[id] = *mapped;
  }
  return absl::OkStatus();
}

absl::Status GroupRun::Upload(Member& member) {
  Work& work = *member.work;
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    if (!work.request->input(id).present) continue;
    std::byte* to = member.memory[id];
    size_t index = 0, offset = 0;
    while (!work.cancel.cancelled()) {
      const std::vector<ConstHostSpan> piece =
          NextPiece(work.inputs[id], index, offset);
      if (piece.empty()) break;
      if (absl::Status status = stream_.Upload(piece, to); !status.ok()) {
        return status;
      }
      for (const ConstHostSpan& span : piece) to += span.size();
    }
  }
  return absl::OkStatus();
}

void GroupRun::Bind(Member& member) {
  const Work& work = *member.work;
  member.bound = work.request->Bind(member.memory, &work.cancel);
  const BoundRequest& bound = *member.bound;
  if (!bound.forward.empty()) {
    member.kernel =
        backend_.Kernel(op_, bound.forward.front().problem, options_);
  } else if (!bound.backward.empty()) {
    member.kernel =
        backend_.Kernel(op_, bound.backward.front().problem, options_);
  } else {
    // No sequences at all, so no kernel; what was asked for did nothing.
    member.kernel.algorithm = options_.algorithm == Algorithm::kAuto
                                  ? Algorithm::kFlashAttention2
                                  : options_.algorithm;
    member.kernel.name = "none";
  }
}

// Half of them at a time when there is no memory to run all of them at once:
// their inputs are on the device, and nowhere else any more. Fails only when
// the device is broken.
absl::Status GroupRun::Launch(absl::Span<Member> members) {
  absl::Status status = Enqueue(members);
  if (!absl::IsResourceExhausted(status)) return status;
  if (members.size() > 1) {
    const size_t half = members.size() / 2;
    status = Launch(members.first(half));
    return status.ok() ? Launch(members.subspan(half)) : status;
  }
  members.front().state = State::kFailed;
  members.front().failure = std::move(status);
  --loaded_;
  return absl::OkStatus();
}

absl::Status GroupRun::Enqueue(absl::Span<const Member> members) {
  std::vector<ForwardArgs> forward;
  std::vector<BackwardArgs> backward;
  for (const Member& member : members) {
    if (member.bound == nullptr) continue;
    forward.insert(forward.end(), member.bound->forward.begin(),
                   member.bound->forward.end());
    backward.insert(backward.end(), member.bound->backward.begin(),
                    member.bound->backward.end());
  }
  if (!forward.empty()) return stream_.Forward(forward, options_);
  if (!backward.empty()) return stream_.Backward(backward, options_);
  return absl::OkStatus();
}

absl::Status GroupRun::Download() {
  for (Member& member : members_) {
    if (member.state != State::kLoaded) continue;
    for (int i = 0; i < kTensorIds; ++i) {
      const TensorId id = static_cast<TensorId>(i);
      if (!member.outputs[id]) continue;
      absl::Status status =
          stream_.Download(member.memory[id], member.outputs[id].span());
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

std::vector<GroupRun::Completed> GroupRun::TakeCompleted() {
  std::vector<Completed> completed;
  const std::string device = DeviceString(backend_.device());
  for (Member& member : members_) {
    if (member.state == State::kDeferred) continue;
    if (member.state == State::kLoaded && member.work->cancel.cancelled()) {
      member.state = State::kFailed;
      member.failure = absl::CancelledError("cancelled");
    }
    if (member.state == State::kFailed) {
      member.outputs = {};
      completed.push_back({std::move(member.work), std::move(member.failure)});
      continue;
    }
    WorkResult result;
    result.outputs = std::move(member.outputs);
    result.device = device;
    result.kernel = std::move(member.kernel);
    result.batch_requests = loaded_;
    result.phases.upload = times_.upload;
    result.phases.compute = times_.compute;
    result.phases.download = times_.download;
    completed.push_back({std::move(member.work), std::move(result)});
  }
  return completed;
}

std::vector<std::shared_ptr<Work>> GroupRun::TakeDeferred() {
  std::vector<std::shared_ptr<Work>> deferred;
  for (Member& member : members_) {
    if (member.state != State::kDeferred) continue;
    member.outputs = {};
    deferred.push_back(std::move(member.work));
  }
  return deferred;
}

std::vector<std::shared_ptr<Work>> GroupRun::TakeAll() {
  std::vector<std::shared_ptr<Work>> all;
  for (Member& member : members_) {
    member.outputs = {};
    all.push_back(std::move(member.work));
  }
  return all;
}

}  // namespace attnd::server
