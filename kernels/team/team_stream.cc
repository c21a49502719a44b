#include "kernels/team/team_stream.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/predict.h"
#include "kernels/team/plan_run.h"

namespace attnd {
namespace {

std::string DeviceName(const DeviceInfo& device) {
  return absl::StrCat(device.kind, ":", device.index);
}

}  // namespace

std::string Members::NameOf(int member) const {
  return DeviceName(all_[member]->device());
}

void Members::TakeOut(int member, const absl::Status& why) {
  MutexLock lock(mutex_);
  if (faults_[member].ok()) faults_[member] = why;
}

std::vector<int> Members::InService() const {
  MutexLock lock(mutex_);
  std::vector<int> members;
  for (int i = 0; i < size(); ++i) {
    if (faults_[i].ok()) members.push_back(i);
  }
  return members;
}

std::string Members::Missing() const {
  MutexLock lock(mutex_);
  std::string missing;
  for (int i = 0; i < size(); ++i) {
    if (faults_[i].ok()) continue;
    absl::StrAppend(&missing, "; without ", NameOf(i),
                    ", which failed: ", faults_[i].message());
  }
  return missing;
}

absl::StatusOr<std::unique_ptr<TeamStream>> TeamStream::Create(
    Members& members) {
  std::unique_ptr<TeamStream> stream(new TeamStream(members));
  for (int member : members.InService()) {
    absl::StatusOr<std::unique_ptr<MemberStream>> own =
        members.at(member).NewMemberStream();
    if (!own.ok()) return own.status();
    stream->streams_[member] = *std::move(own);
  }
  return stream;
}

TeamStream::TeamStream(Members& members)
    : members_(members),
      host_memory_(members.at(0).host_memory()),
      streams_(members.size()),
      crew_(members.size()),
      times_(members.size()) {}

TeamStream::~TeamStream() {
  Drain().IgnoreError();
  TeamStream::Reset();
}

absl::StatusOr<std::byte*> TeamStream::Allocate(int64_t bytes) {
  bytes = std::max(bytes, kTensorAlignment);
  std::byte* memory = host_memory_->Allocate(bytes);
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes, " bytes of input"));
  }
  blocks_.push_back({memory, bytes});
  return memory;
}

absl::StatusOr<std::byte*> TeamStream::MapOutput(HostSpan host) {
  return host.data();
}

absl::Status TeamStream::Upload(absl::Span<const ConstHostSpan> from,
                                std::byte* to) {
  for (const ConstHostSpan& span : from) {
    if (span.empty()) continue;
    std::memcpy(to, span.data(), span.size());
    to += span.size();
  }
  return absl::OkStatus();
}

absl::Status TeamStream::UploadPinned(ConstHostSpan from, std::byte* to) {
  return Upload({from}, to);
}

absl::Status TeamStream::Forward(absl::Span<const ForwardArgs> group,
                                 const GroupOptions& options) {
  Job job;
  job.op = Op::kForward;
  job.group.forward.assign(group.begin(), group.end());
  job.options = options;
  return Begin(std::move(job));
}

absl::Status TeamStream::Backward(absl::Span<const BackwardArgs> group,
                                  const GroupOptions& options) {
  Job job;
  job.op = Op::kBackward;
  job.group.backward.assign(group.begin(), group.end());
  job.options = options;
  return Begin(std::move(job));
}

absl::Status TeamStream::Begin(Job job) {
  FillPadding(job.group);
  absl::Status status = RunOnce(job);
  if (absl::IsResourceExhausted(status)) {
    absl::Status drained = Drain();
    if (!drained.ok()) {
      drained = RunAllAnew(std::move(drained));
    } else if (jobs_.empty()) {
      // What it had begun to take; beside others' it goes with theirs.
      ResetMembers();
    }
    return drained.ok() ? status : drained;
  }
  jobs_.push_back(std::move(job));
  return status.ok() ? status : RunAllAnew(std::move(status));
}

absl::Status TeamStream::RunOnce(Job& job) {
  job.members = members_.InService();
  // Another stream may have taken out a member that this one still has.
  std::vector<MemberStream*> streams;
  streams.reserve(job.members.size());
  for (int member : job.members) streams.push_back(streams_[member].get());
  if (streams.empty()) return absl::InternalError("no device is left");
  const Backend& first = members_.at(job.members.front());
  job.request = job.op == Op::kForward
                    ? plan::Describe(job.group.forward, job.options, first)
                    : plan::Describe(job.group.backward, job.options, first);
  job.request.rates = members_.rates();
  job.plan = plan::MakePlan(job.request, static_cast<int>(streams.size()));
  PlanRun run(job.request, job.plan, job.group, job.options, streams, points_);
  points_ += static_cast<int>(job.plan.steps.size());
  drained_ = false;
  absl::Status status = run.Allocate();
  if (status.ok()) status = run.Run(crew_);
  // Its results are nobody's any more.
  if (absl::IsCancelled(status)) return absl::OkStatus();
  if (!status.ok() && !absl::IsResourceExhausted(status)) {
    members_.TakeOut(job.members[run.failed()], status);
  }
  return status;
}

absl::Status TeamStream::Drain() {
  if (drained_) return absl::OkStatus();
  drained_ = true;
  absl::Status status;
  for (int member = 0; member < members_.size(); ++member) {
    if (streams_[member] == nullptr) continue;
    absl::StatusOr<PhaseTimes> times = streams_[member]->Wait();
    if (times.ok()) {
      times_[member].upload += times->upload;
      times_[member].compute += times->compute;
      times_[member].download += times->download;
    } else {
      members_.TakeOut(member, times.status());
      status.Update(times.status());
    }
  }
  return status;
}

absl::Status TeamStream::RunAllAnew(absl::Status why) {
  // Each turn has one member less.
  while (!why.ok() && !members_.InService().empty()) {
    Drain().IgnoreError();
    ResetMembers();
    std::fill(times_.begin(), times_.end(), PhaseTimes());
    why = absl::OkStatus();
    for (size_t i = 0; why.ok() && i < jobs_.size(); ++i) {
      why = RunOnce(jobs_[i]);
    }
    if (absl::IsResourceExhausted(why)) break;
  }
  return why;
}

absl::Status TeamStream::Finish() {
  absl::Status status = Drain();
  while (!status.ok()) {
    status = RunAllAnew(std::move(status));
    if (!status.ok()) return status;
    status = Drain();
  }
  return status;
}

absl::Status TeamStream::Download(const std::byte*, HostSpan) {
  return absl::OkStatus();
}

absl::Status TeamStream::Use(std::shared_ptr<DeviceBuffer> buffer) {
  buffers_.push_back(std::move(buffer));
  return absl::OkStatus();
}

absl::StatusOr<int> TeamStream::Mark() { return marks_++; }

absl::Status TeamStream::WaitFor(int) { return Finish(); }

absl::StatusOr<PhaseTimes> TeamStream::Wait() {
  absl::Status status = Finish();
  if (!status.ok()) return status;
  WriteReport();
  PhaseTimes longest;
  for (PhaseTimes& times : times_) {
    longest.upload = std::max(longest.upload, times.upload);
    longest.compute = std::max(longest.compute, times.compute);
    longest.download = std::max(longest.download, times.download);
    times = {};
  }
  return longest;
}

std::string TeamStream::Detours(const Job& job) const {
  std::set<std::pair<int, int>> pairs;
  for (const plan::Step& step : job.plan.steps) {
    const auto* pull = std::get_if<plan::Pull>(&step.what);
    if (pull == nullptr) continue;
    const int reader = job.members[step.device];
    const int owner = job.members[pull->peer];
    if (!streams_[reader]->Reaches(*streams_[owner])) {
      pairs.emplace(reader, owner);
    }
  }
  std::string text;
  for (const auto& [reader, owner] : pairs) {
    absl::StrAppend(&text, "; ", members_.NameOf(reader), " reaches ",
                    members_.NameOf(owner), " through the host's memory alone");
  }
  return text;
}

std::string TeamStream::Why() const {
  const Job& job = jobs_.back();
  return absl::StrCat(job.members.size() == 1 ? "there is one device alone"
                                              : absl::string_view(job.plan.why),
                      Detours(job), members_.Missing());
}

void TeamStream::WriteReport() {
  report_ = {};
  if (jobs_.empty()) return;
  const Job& job = jobs_.back();
  report_.kind = job.members.size() == 1 ? PlanKind::kOneDevice : job.plan.kind;
  report_.why = Why();
  for (int member : job.members) {
    report_.devices.push_back(
        {members_.NameOf(member), times_[member].compute});
  }
  for (const Job& one : jobs_) {
    // Of what lies on the devices by then, as their own times are measured.
    plan::PlanRequest request = one.request;
    request.inputs = plan::InputsLie::kWherePlanned;
    report_.predicted += plan::Predict(request, one.plan);
  }
}

const PlanReport* TeamStream::plan_report() const {
  return report_.devices.empty() ? nullptr : &report_;
}

void TeamStream::ResetMembers() {
  for (std::unique_ptr<MemberStream>& stream : streams_) {
    if (stream != nullptr) stream->Reset();
  }
  const std::vector<int> left = members_.InService();
  for (int member = 0; member < members_.size(); ++member) {
    if (std::find(left.begin(), left.end(), member) == left.end()) {
      streams_[member] = nullptr;
    }
  }
  points_ = 0;
}

void TeamStream::Reset() {
  // Whatever was left of it has happened, or has been given up by its device.
  Drain().IgnoreError();
  ResetMembers();
  jobs_.clear();
  buffers_.clear();
  report_ = {};
  marks_ = 0;
  for (const HostBlock& block : blocks_) {
    host_memory_->Free(block.memory, block.bytes);
  }
  blocks_.clear();
}

}  // namespace attnd
