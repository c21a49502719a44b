#include "server/scheduling/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "proto/wire/status.h"
#include "server/scheduling/scheduler_impl.h"

namespace attnd::server {
namespace {

PolicyOptions MakePolicyOptions(const SchedulerOptions& options) {
  PolicyOptions policy;
  policy.small_request_flops = options.small_request_flops;
  policy.max_batch_requests = options.max_batch_requests;
  policy.max_batch_flops = options.max_batch_flops;
  policy.max_batch_delay = options.max_batch_delay;
  return policy;
}

absl::Status OutOfRange(absl::string_view option, absl::string_view range) {
  return absl::InvalidArgumentError(absl::StrCat(option, " must be ", range));
}

}  // namespace

absl::Status SchedulerOptions::Validate() const {
  if (memory_bytes < 1) return OutOfRange("memory_bytes", "at least 1");
  if (max_queue_requests < 1) {
    return OutOfRange("max_queue_requests", "at least 1");
  }
  if (!(max_queue_flops > 0)) return OutOfRange("max_queue_flops", "positive");
  if (!(max_request_flops > 0 && max_request_flops <= max_queue_flops)) {
    return OutOfRange("max_request_flops",
                      "positive and at most max_queue_flops");
  }
  if (lanes_per_device < 1 || lanes_per_device > 64) {
    return OutOfRange("lanes_per_device", "from 1 to 64");
  }
  if (!(small_request_flops >= 0)) {
    return OutOfRange("small_request_flops", "at least 0");
  }
  if (!(run_here_flops >= 0)) return OutOfRange("run_here_flops", "at least 0");
  if (max_batch_requests < 1) {
    return OutOfRange("max_batch_requests", "at least 1");
  }
  if (!(max_batch_flops >= 0)) {
    return OutOfRange("max_batch_flops", "at least 0");
  }
  if (max_batch_delay < absl::ZeroDuration() ||
      max_batch_delay > absl::Minutes(1)) {
    return OutOfRange("max_batch_delay", "from 0 to 1 minute");
  }
  if (max_idle_output_bytes < 0) {
    return OutOfRange("max_idle_output_bytes", "at least 0");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(
    const SchedulerOptions& options, std::vector<Backend*> backends,
    absl::AnyInvocable<void(int, const absl::Status&)> on_device_fault) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  if (backends.empty() || backends.size() > 64) {
    return OutOfRange("the number of devices", "from 1 to 64");
  }
  auto impl = std::make_unique<Impl>(options, std::move(backends),
                                     std::move(on_device_fault));
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<Scheduler>(new Scheduler(std::move(impl)));
}

Scheduler::Scheduler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Scheduler::~Scheduler() = default;
absl::Status Scheduler::Submit(WorkPtr work) {
  return impl_->Submit(std::move(work));
}
void Scheduler::Cancel(const WorkPtr& work) { impl_->Cancel(work); }
void Scheduler::Drain(absl::Time deadline) { impl_->Drain(deadline); }
SchedulerStats Scheduler::stats() const { return impl_->stats(); }

Scheduler::Impl::Impl(
    const SchedulerOptions& options, std::vector<Backend*> backends,
    absl::AnyInvocable<void(int, const absl::Status&)> on_device_fault)
    : options_(options),
      backends_(std::move(backends)),
      account_(Account::Create(options.memory_bytes)),
      on_device_fault_(std::move(on_device_fault)),
      policy_(MakePolicyOptions(options)),
      queue_requests_(static_cast<double>(options.max_queue_requests)),
      queue_flops_(options.max_queue_flops) {
  for (Backend* backend : backends_) {
    pools_.push_back(OutputPool::Create(backend->host_memory(),
                                        options.max_idle_output_bytes));
  }
}

absl::Status Scheduler::Impl::Start() {
  std::vector<std::unique_ptr<Stream>> streams;
  for (int device = 0; device < backends_.size(); ++device) {
    in_service_ |= uint64_t{1} << device;
    for (int i = 0; i < options_.lanes_per_device; ++i) {
      absl::StatusOr<std::unique_ptr<Stream>> stream =
          backends_[device]->NewStream();
      if (!stream.ok()) return stream.status();
      streams.push_back(*std::move(stream));
      auto lane = std::make_unique<LaneState>();
      lane->device = device;
      lane->filter.device = uint64_t{1} << device;
      lane->filter.small_only = i == 0 && options_.lanes_per_device > 1;
      lanes_.push_back(std::move(lane));
    }
  }
  // Their threads look at lanes_: only now is it complete.
  for (int i = 0; i < lanes_.size(); ++i) {
    const int device = lanes_[i]->device;
    lanes_[i]->lane = std::make_unique<Lane>(
        i, *backends_[device], std::move(streams[i]), *pools_[device], *this);
  }
  return absl::OkStatus();
}

Scheduler::Impl::~Impl() {
  Drain(absl::InfinitePast());
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& lane : lanes_) {
      lane->idle = false;
      lane->wake.notify_one();
    }
  }
  for (auto& lane : lanes_) lane->lane.reset();
}

absl::Status Scheduler::Impl::Submit(WorkPtr work) {
  absl::StatusOr<Footprint> footprint = Measure(*work->request, backends_);
  if (!footprint.ok()) return footprint.status();
  if (absl::Status status = CheckEverFits(*footprint, options_); !status.ok()) {
    return status;
  }
  std::vector<Ended> ended;
  LaneState* lane = nullptr;
  std::vector<WorkPtr> group;
  absl::Status status;
  {
    std::lock_guard lock(mutex_);
    work->admitted = MonotonicNow();
    SweepExpiredLocked(work->admitted, ended);
    status = AdmitLocked(*footprint, work);
    if (status.ok()) {
      lane = WakeLocked(policy_.IsSmall(footprint->flops), footprint->devices);
    }
    if (lane != nullptr) group = BorrowLocked(*lane, *footprint);
  }
  if (!group.empty()) {
    RunHere(*lane, std::move(group));
  } else if (lane != nullptr) {
    lane->wake.notify_one();
  }
  CompleteAll(std::move(ended));
  if (status.ok()) TrimPools();
  return status;
}

absl::Status Scheduler::Impl::AdmitLocked(const Footprint& footprint,
                                          const WorkPtr& work) {
  if (draining_) return absl::UnavailableError("the server is shutting down");
  const uint64_t devices = footprint.devices & in_service_;
  if (devices == 0) {
    return absl::UnavailableError("no device that can run this is in service");
  }
  if (work->deadline <= work->admitted) {
    return absl::DeadlineExceededError(
        "past the deadline before it was queued");
  }
  if (work->cancel.cancelled()) return absl::CancelledError("cancelled");
  if (policy_.requests() >= options_.max_queue_requests ||
      !queue_requests_.MayAdd(work->client)) {
    return FullLocked("too many requests wait");
  }
  if (policy_.flops() + footprint.flops > options_.max_queue_flops ||
      !queue_flops_.MayAdd(work->client)) {
    return FullLocked("too much work waits");
  }
  work->charge = account_->TryCharge(work->client, footprint.bytes());
  if (work->charge == nullptr) return FullLocked("no memory now");

  work->id = ++last_id_;
  work->cost_flops = footprint.flops;
  queue_requests_.Add(work->client, 1);
  queue_flops_.Add(work->client, footprint.flops);
  ++in_flight_;
  Pending pending;
  pending.id = work->id;
  pending.priority = work->priority;
  pending.client = work->client;
  pending.key = footprint.key;
  pending.flops = footprint.flops;
  pending.devices = devices;
  pending.admitted = work->admitted;
  pending.deadline = work->deadline;
  policy_.Add(std::move(pending));
  queued_.emplace(work->id, work);
  return absl::OkStatus();
}

absl::Status Scheduler::Impl::FullLocked(absl::string_view what) const {
  double cost = policy_.Cost(policy_.flops());
  for (const auto& lane : lanes_) cost += lane->cost;
  return wire::WithRetryInfo(absl::ResourceExhaustedError(what),
                             rate_.RetryDelay(cost, LanesInServiceLocked()));
}

void Scheduler::Impl::Cancel(const WorkPtr& work) {
  work->cancel.Cancel();
  std::vector<Ended> ended;
  {
    std::lock_guard lock(mutex_);
    if (work->id == 0 || !policy_.Remove(work->id)) return;
    ended.push_back({UnqueueLocked(work->id), CancelledStatusLocked(*work)});
  }
  CompleteAll(std::move(ended));
}

void Scheduler::Impl::Drain(absl::Time deadline) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  policy_.StopWaiting();
  // Whoever waits for company looks again.
  for (auto& lane : lanes_) {
    lane->idle = false;
    lane->wake.notify_one();
  }
  const auto all_done = [this] { return in_flight_ == 0; };
  if (WaitUntil(all_done_, lock, deadline, all_done)) return;

  std::vector<Ended> ended;
  for (uint64_t id : policy_.TakeUnservable(0)) {
    ended.push_back({UnqueueLocked(id),
                     absl::UnavailableError("the server is shutting down")});
  }
  for (auto& lane : lanes_) {
    for (const WorkPtr& work : lane->running) {
      if (work->cancel.cancelled()) continue;
      drained_.insert(work->id);
      work->cancel.Cancel();
    }
  }
  lock.unlock();
  CompleteAll(std::move(ended));
  lock.lock();
  all_done_.wait(lock, all_done);
}

SchedulerStats Scheduler::Impl::stats() const {
  SchedulerStats stats;
  stats.account_bytes = account_->held_bytes();
  stats.account_limit_bytes = account_->limit_bytes();
  std::lock_guard lock(mutex_);
  stats.queued_requests = policy_.requests();
  stats.queued_flops = policy_.flops();
  stats.running_requests = in_flight_ - policy_.requests();
  for (int device = 0; device < backends_.size(); ++device) {
    stats.device_in_service.push_back((in_service_ >> device & 1) != 0);
  }
  return stats;
}

}  // namespace attnd::server
