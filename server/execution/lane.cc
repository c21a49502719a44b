#include "server/execution/lane.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/work/device_name.h"

namespace attnd::server {

Lane::Lane(int index, const Backend& backend, StreamPool& streams,
           OutputPool& pool, absl::Duration slice_time, LaneFeeder& feeder)
    : index_(index),
      backend_(backend),
      streams_(streams),
      pool_(pool),
      slice_time_(slice_time),
      feeder_(feeder),
      thread_([this] { Loop(); }) {}

Lane::~Lane() { thread_.join(); }

void Lane::Loop() {
  while (true) {
    Assignment assignment = feeder_.NextGroup(index_);
    if (assignment.works.empty()) return;
    Run(std::move(assignment));
  }
}

void Lane::Run(Assignment assignment) {
  bool may_pause = assignment.may_pause;
  std::unique_ptr<GroupRun> run = std::move(assignment.run);
  if (run == nullptr) run = NewRun(std::move(assignment.works));
  const absl::Time slice_end =
      may_pause ? MonotonicNow() + slice_time_ : absl::InfiniteFuture();
  const auto pause = [&] {
    return may_pause && wanted_.load(std::memory_order_relaxed) &&
           MonotonicNow() >= slice_end;
  };
  const auto complete = [this](GroupRun::Completed completed) {
    feeder_.Complete(std::move(completed.work), std::move(completed.result));
  };
  while (run != nullptr) {
    const absl::StatusOr<GroupRun::Outcome> outcome =
        run->Execute(pause, complete);
    if (!outcome.ok()) return Fail(*run, outcome.status());
    if (*outcome == GroupRun::Outcome::kPaused) {
      run = feeder_.Park(index_, std::move(run));
      may_pause = false;
      continue;
    }
    streams_.Return(run->TakeStream());
    std::vector<WorkPtr> deferred = run->TakeDeferred();
    run = deferred.empty() ? nullptr : NewRun(std::move(deferred));
  }
}

Assignment Lane::Begin(Assignment assignment) {
  if (assignment.run != nullptr) return assignment;
  assignment.run = NewRun(assignment.works);
  assignment.run->Begin();
  return assignment;
}

std::unique_ptr<GroupRun> Lane::NewRun(std::vector<WorkPtr> works) {
  return std::make_unique<GroupRun>(backend_, streams_.Take(), pool_,
                                    std::move(works));
}

void Lane::Fail(GroupRun& run, const absl::Status& status) {
  run.DropStream();
  feeder_.DeviceFault(index_, status);
  const absl::Status failure(
      status.code(), absl::StrCat("device ", DeviceLabel(backend_.device()),
                                  " failed: ", status.message()));
  for (WorkPtr& work : run.TakeAll()) {
    feeder_.Complete(std::move(work), failure);
  }
}

}  // namespace attnd::server
