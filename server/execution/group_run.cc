#include "server/execution/group_run.h"

#include <utility>

#include "base/clock.h"
#include "server/work/device_name.h"

namespace attnd::server {
namespace {

// Results leave together until they are this much, as a mark costs some
// microseconds, about what a device takes to send a tenth of it.
constexpr int64_t kPortionBytes = int64_t{1} << 20;

// Adds the time that `step` takes to `phase`.
template <typename Step>
absl::Status Timed(absl::Duration& phase, Step step) {
  const absl::Time start = MonotonicNow();
  absl::Status status = step();
  phase += MonotonicNow() - start;
  return status;
}

}  // namespace

GroupRun::GroupRun(const Backend& backend, Stream& stream, OutputPool& pool,
                   std::vector<WorkPtr> works)
    : backend_(backend), stream_(stream), pool_(pool) {
  const RequestSpec& spec = works.front()->request->spec();
  op_ = spec.op;
  options_ = {spec.algorithm, spec.deterministic};
  members_.reserve(works.size());
  for (WorkPtr& work : works) members_.emplace_back(std::move(work));
}

// The device's own times come with Wait, too late for members that go before
// the others. Those get the times as this thread sees them: what it spends in
// each phase's calls, and waiting for the phase's end.
absl::Status GroupRun::Execute(Complete complete) {
  absl::Status status = Timed(times_.upload, [this] { return LoadAll(); });
  if (!status.ok()) return status;
  if (loaded_ == 0 && !enqueued_) return Finish(complete);
  Divide();
  absl::StatusOr<int> uploaded = 0, computed = 0;
  if (!portions_.empty()) uploaded = stream_.Mark();
  if (!uploaded.ok()) return uploaded.status();
  status = Timed(times_.compute,
                 [this] { return Launch(absl::MakeSpan(members_)); });
  if (!status.ok()) return status;
  if (!portions_.empty()) computed = stream_.Mark();
  if (!computed.ok()) return computed.status();
  status = Timed(times_.download, [this] { return DownloadAll(); });
  if (!status.ok()) return status;
  if (!portions_.empty()) {
    status = Timed(times_.upload, [&] { return stream_.WaitFor(*uploaded); });
    if (!status.ok()) return status;
    status = Timed(times_.compute, [&] { return stream_.WaitFor(*computed); });
    if (!status.ok()) return status;
    if (status = WaitForPortions(complete); !status.ok()) return status;
  }
  absl::StatusOr<PhaseTimes> times = stream_.Wait();
  if (!times.ok()) return times.status();
  times_ = *times;
  return Finish(complete);
}

absl::Status GroupRun::LoadAll() {
  for (GroupMember& member : members_) {
    const absl::StatusOr<bool> enqueued =
        member.Load(backend_, stream_, pool_, /*may_defer=*/loaded_ > 0);
    if (!enqueued.ok()) return enqueued.status();
    enqueued_ |= *enqueued;
    if (member.state() == State::kLoaded) ++loaded_;
  }
  return absl::OkStatus();
}

// Decides whose results go before the others'.
void GroupRun::Divide() {
  int64_t bytes = 0;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].state() != State::kLoaded) continue;
    if (bytes >= kPortionBytes) {
      portions_.push_back({.end = i});
      bytes = 0;
    }
    bytes += members_[i].work()->request->output_bytes();
  }
}

// Half of them at a time when there is no memory to run all of them at once:
// their inputs are on the device, and nowhere else any more. Fails only when
// the device is broken.
absl::Status GroupRun::Launch(absl::Span<GroupMember> members) {
  absl::Status status = Enqueue(members);
  if (!absl::IsResourceExhausted(status)) return status;
  if (members.size() > 1) {
    const size_t half = members.size() / 2;
    status = Launch(members.first(half));
    return status.ok() ? Launch(members.subspan(half)) : status;
  }
  members.front().Fail(std::move(status));
  --loaded_;
  return absl::OkStatus();
}

absl::Status GroupRun::Enqueue(absl::Span<const GroupMember> members) {
  std::vector<ForwardArgs> forward;
  std::vector<BackwardArgs> backward;
  for (const GroupMember& member : members) {
    const BoundRequest* bound = member.bound();
    if (bound == nullptr) continue;
    forward.insert(forward.end(), bound->forward.begin(), bound->forward.end());
    backward.insert(backward.end(), bound->backward.begin(),
                    bound->backward.end());
  }
  absl::Status status;
  if (!forward.empty()) status = stream_.Forward(forward, options_);
  if (!backward.empty()) status = stream_.Backward(backward, options_);
  if (!status.ok() || (forward.empty() && backward.empty())) return status;
  return stream_.Proceed([] { return false; }).status();
}

absl::Status GroupRun::DownloadAll() {
  auto portion = portions_.begin();
  for (size_t i = 0; i < members_.size(); ++i) {
    if (portion != portions_.end() && portion->end == i) {
      absl::StatusOr<int> mark = stream_.Mark();
      if (!mark.ok()) return mark.status();
      portion->mark = *mark;
      ++portion;
    }
    if (members_[i].state() != State::kLoaded) continue;
    if (absl::Status status = members_[i].Download(stream_); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

// What the device has downloaded, and so will not touch again, may go while it
// still works for the others, mapped or not.
absl::Status GroupRun::WaitForPortions(Complete complete) {
  for (const Portion& portion : portions_) {
    absl::Status status =
        Timed(times_.download, [&] { return stream_.WaitFor(portion.mark); });
    if (!status.ok()) return status;
    for (size_t i = completed_; i < portion.end; ++i) {
      charges_.push_back(members_[i].work()->charge);
    }
    CompleteUpTo(portion.end, complete);
  }
  return absl::OkStatus();
}

// Nothing of theirs is on the device when the last ones complete: what the
// account then says is free has been given back.
absl::Status GroupRun::Finish(Complete complete) {
  stream_.Reset();
  charges_.clear();
  CompleteUpTo(members_.size(), complete);
  return absl::OkStatus();
}

void GroupRun::CompleteUpTo(size_t end, Complete complete) {
  WorkResult group;
  group.device = DeviceString(backend_.device());
  group.batch_requests = loaded_;
  group.phases.upload = times_.upload;
  group.phases.compute = times_.compute;
  group.phases.download = times_.download;
  for (; completed_ < end; ++completed_) {
    GroupMember& member = members_[completed_];
    if (member.state() == State::kDeferred) continue;
    absl::StatusOr<WorkResult> result = member.TakeResult(group);
    complete({member.Take(), std::move(result)});
  }
}

std::vector<WorkPtr> GroupRun::TakeDeferred() {
  std::vector<WorkPtr> deferred;
  for (GroupMember& member : members_) {
    if (member.state() == State::kDeferred) deferred.push_back(member.Take());
  }
  return deferred;
}

std::vector<WorkPtr> GroupRun::TakeAll() {
  charges_.clear();
  std::vector<WorkPtr> all;
  for (GroupMember& member : members_) {
    if (member.work() != nullptr) all.push_back(member.Take());
  }
  return all;
}

}  // namespace attnd::server
