#include "server/execution/group_run.h"

#include <utility>

#include "base/clock.h"
#include "server/work/device_name.h"
#include "server/work/group_key.h"

namespace attnd::server {
namespace {

// Results leave together until they are this much, as a mark costs some
// microseconds, about what a device takes to send a tenth of it.
constexpr int64_t kPortionBytes = int64_t{1} << 20;

// A lane that has waited so long for its device has others get ready meanwhile,
// which takes them about as long.
constexpr absl::Duration kSoon = absl::Microseconds(20);

// Adds the time that `step` takes to `phase`.
template <typename Step>
absl::Status Timed(absl::Duration& phase, Step step) {
  const absl::Time start = MonotonicNow();
  absl::Status status = step();
  phase += MonotonicNow() - start;
  return status;
}

}  // namespace

GroupRun::GroupRun(const Backend& backend, std::unique_ptr<Stream> stream,
                   OutputPool& pool, std::vector<WorkPtr> works)
    : backend_(backend), pool_(pool), stream_(std::move(stream)) {
  options_ = OptionsOf(works.front()->request->spec());
  if (const auto& plan = works.front()->plan; plan.has_value()) {
    options_.plan = plan->kind;
  }
  members_.reserve(works.size());
  for (WorkPtr& work : works) members_.emplace_back(std::move(work));
}

void GroupRun::Begin() {
  taken_ = MonotonicNow();
  early_ = LoadAndLaunch([] { return false; });
}

absl::StatusOr<GroupRun::Outcome> GroupRun::Execute(Pause pause,
                                                    Complete complete) {
  const absl::Time now = MonotonicNow();
  if (paused_at_.has_value()) {
    paused_ += now - *paused_at_;
  } else if (!early_.has_value()) {
    taken_ = now;
  }
  share_before_ = share_;
  absl::Status status = early_.value_or(absl::OkStatus());
  if (status.ok() && !begun_) status = LoadAndLaunch(pause);
  if (status.ok() && begun_) {
    status = Timed(times_.compute, [&] { return Proceed(pause); });
  }
  if (!status.ok()) return status;
  if (share_ < 1) {
    paused_at_ = MonotonicNow();
    return Outcome::kPaused;
  }
  if (enqueued_) status = Collect(complete);
  if (!status.ok()) return status;
  // Nothing of theirs is on the device when the last ones complete: what the
  // account then says is free has been given back.
  stream_->Reset();
  charges_.clear();
  CompleteUpTo(members_.size(), complete);
  return Outcome::kDone;
}

// Everything up to the kernels, and what begins them, unless it is paused.
absl::Status GroupRun::LoadAndLaunch(Pause pause) {
  absl::Status status = Timed(times_.upload, [&] { return LoadAll(pause); });
  if (!status.ok() || members_.back().state() == State::kLoading) return status;
  begun_ = true;
  if (!enqueued_) return absl::OkStatus();
  Divide();
  if (!portions_.empty()) {
    const absl::StatusOr<int> mark = stream_->Mark();
    if (!mark.ok()) return mark.status();
    uploaded_ = *mark;
  }
  return Timed(times_.compute,
               [this] { return Launch(absl::MakeSpan(members_)); });
}

// The device's own times come with Wait, too late for members that go before
// the others. Those get the times as this thread sees them: what it spends in
// each phase's calls, and waiting for the phase's end.
absl::Status GroupRun::Collect(Complete complete) {
  absl::StatusOr<int> computed = 0;
  if (!portions_.empty()) computed = stream_->Mark();
  if (!computed.ok()) return computed.status();
  absl::Status status =
      Timed(times_.download, [this] { return DownloadAll(); });
  if (!status.ok()) return status;
  if (!portions_.empty()) {
    status = Timed(times_.upload, [&] { return stream_->WaitFor(uploaded_); });
    if (!status.ok()) return status;
    status = Timed(times_.compute, [&] { return stream_->WaitFor(*computed); });
    if (!status.ok()) return status;
    if (status = WaitForPortions(complete); !status.ok()) return status;
  }
  if (!stream_->EndsWithin(kSoon)) {
    for (auto& tell : TakeUnderWay()) tell();
  }
  absl::StatusOr<PhaseTimes> times = stream_->Wait();
  if (!times.ok()) return times.status();
  times_ = *times;
  if (const PlanReport* plan = stream_->plan_report()) plan_ = *plan;
  return absl::OkStatus();
}

absl::Status GroupRun::LoadAll(Pause pause) {
  for (GroupMember& member : members_) {
    absl::Status status = member.Load(backend_, *stream_, pool_,
                                      /*may_defer=*/loaded_ > 0, pause);
    if (!status.ok()) return status;
    enqueued_ |= member.enqueued();
    if (member.state() == State::kLoaded) ++loaded_;
  }
  return absl::OkStatus();
}

// Decides whose results go before the others'. Of a team none do: what they ran
// as is known once all is over.
void GroupRun::Divide() {
  if (backend_.device().members > 0) return;
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
  // Nothing of it has begun.
  forward_.clear();
  backward_.clear();
  if (members.size() > 1) {
    const size_t half = members.size() / 2;
    status = Launch(members.first(half));
    if (status.ok()) status = Proceed([] { return false; });
    return status.ok() ? Launch(members.subspan(half)) : status;
  }
  members.front().Fail(std::move(status));
  --loaded_;
  return absl::OkStatus();
}

absl::Status GroupRun::Enqueue(absl::Span<const GroupMember> members) {
  forward_.clear();
  backward_.clear();
  for (const GroupMember& member : members) {
    const BoundRequest* bound = member.bound();
    if (bound == nullptr) continue;
    forward_.insert(forward_.end(), bound->forward.begin(),
                    bound->forward.end());
    backward_.insert(backward_.end(), bound->backward.begin(),
                     bound->backward.end());
  }
  if (!forward_.empty()) return stream_->Forward(forward_, options_);
  if (!backward_.empty()) return stream_->Backward(backward_, options_);
  return absl::OkStatus();
}

absl::Status GroupRun::Proceed(Pause pause) {
  share_ = 1;
  if (forward_.empty() && backward_.empty()) return absl::OkStatus();
  const absl::StatusOr<double> share = stream_->Proceed(pause);
  if (share.ok()) share_ = *share;
  return share.status();
}

absl::Status GroupRun::DownloadAll() {
  auto portion = portions_.begin();
  for (size_t i = 0; i < members_.size(); ++i) {
    if (portion != portions_.end() && portion->end == i) {
      absl::StatusOr<int> mark = stream_->Mark();
      if (!mark.ok()) return mark.status();
      portion->mark = *mark;
      ++portion;
    }
    if (members_[i].state() != State::kLoaded) continue;
    if (absl::Status status = members_[i].Download(*stream_); !status.ok()) {
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
        Timed(times_.download, [&] { return stream_->WaitFor(portion.mark); });
    if (!status.ok()) return status;
    for (size_t i = completed_; i < portion.end; ++i) {
      charges_.push_back(members_[i].work()->charge);
    }
    CompleteUpTo(portion.end, complete);
  }
  return absl::OkStatus();
}

std::vector<absl::AnyInvocable<void()>> GroupRun::TakeUnderWay() {
  std::vector<absl::AnyInvocable<void()>> tell;
  for (size_t i = completed_; i < members_.size(); ++i) {
    const WorkPtr& work = members_[i].work();
    if (members_[i].state() != State::kLoaded || !work->under_way) continue;
    tell.push_back(std::exchange(work->under_way, nullptr));
  }
  return tell;
}

void GroupRun::CompleteUpTo(size_t end, Complete complete) {
  WorkResult group;
  group.device = DeviceString(backend_.device());
  group.batch_requests = loaded_;
  group.plan = plan_;
  group.phases.upload = times_.upload;
  group.phases.compute = times_.compute;
  group.phases.download = times_.download;
  for (; completed_ < end; ++completed_) {
    GroupMember& member = members_[completed_];
    if (member.state() == State::kDeferred) continue;
    group.phases.queue = taken_ - member.work()->admitted + paused_;
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

absl::Status GroupRun::Abandon() {
  absl::Status status = stream_->Wait().status();
  if (!status.ok()) return status;
  stream_->Reset();
  members_.clear();
  return absl::OkStatus();
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
