#include "server/execution/lane.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/execution/group_run.h"
#include "server/work/device_name.h"

namespace attnd::server {

Lane::Lane(int index, const Backend& backend, std::unique_ptr<Stream> stream,
           OutputPool& pool, LaneFeeder& feeder)
    : index_(index),
      backend_(backend),
      stream_(std::move(stream)),
      pool_(pool),
      feeder_(feeder),
      thread_([this] { Loop(); }) {}

Lane::~Lane() { thread_.join(); }

void Lane::Loop() {
  while (true) {
    std::vector<std::shared_ptr<Work>> works = feeder_.NextGroup(index_);
    if (works.empty()) return;
    Run(std::move(works));
  }
}

void Lane::Run(std::vector<std::shared_ptr<Work>> works) {
  const absl::Time taken = MonotonicNow();
  const auto complete = [&](GroupRun::Completed completed) {
    if (completed.result.ok()) {
      completed.result->phases.queue = taken - completed.work->admitted;
    }
    feeder_.Complete(std::move(completed.work), std::move(completed.result));
  };
  while (!works.empty()) {
    GroupRun run(backend_, *stream_, pool_, std::move(works));
    const absl::Status status = run.Execute(complete);
    if (!status.ok()) {
      stream_.reset();
      feeder_.DeviceFault(index_, status);
      const absl::Status failure(
          status.code(), absl::StrCat("device ", DeviceLabel(backend_.device()),
                                      " failed: ", status.message()));
      for (std::shared_ptr<Work>& work : run.TakeAll()) {
        feeder_.Complete(std::move(work), failure);
      }
      return;
    }
    works = run.TakeDeferred();
  }
}

}  // namespace attnd::server
