// The scheduler as its lanes see it: who runs what next, and what becomes of
// it.

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "proto/wire/status.h"
#include "server/scheduling/scheduler_impl.h"

namespace attnd::server {

std::vector<WorkPtr> Scheduler::Impl::NextGroup(int index) {
  LaneState& lane = *lanes_[index];
  std::unique_lock lock(mutex_);
  std::vector<WorkPtr> finished = FinishGroupLocked(lane);
  if (!finished.empty()) {
    // Maybe the last to hold them: their end is not for under the lock.
    lock.unlock();
    finished.clear();
    lock.lock();
  }
  while (!stopping_ && (in_service_ & lane.filter.device) != 0) {
    const absl::Time now = MonotonicNow();
    std::vector<Ended> ended;
    SweepExpiredLocked(now, ended);
    if (!ended.empty()) {
      lock.unlock();
      CompleteAll(std::move(ended));
      lock.lock();
      continue;
    }
    const Decision decision = policy_.Next(lane.filter, now);
    if (decision.ids.empty()) {
      lane.idle = true;
      const auto woken = [&lane] { return !lane.idle && !lane.borrowed; };
      WaitUntil(lane.wake, lock, decision.ask_again, woken);
      lane.wake.wait(lock, [&lane] { return !lane.borrowed; });
      lane.idle = false;
      continue;
    }
    std::vector<WorkPtr> group = TakeGroupLocked(lane, decision, now);
    LaneState* other = WakeForLeftoversLocked();
    lock.unlock();
    if (other != nullptr) other->wake.notify_one();
    return group;
  }
  return {};
}

std::vector<WorkPtr> Scheduler::Impl::TakeGroupLocked(LaneState& lane,
                                                      const Decision& decision,
                                                      absl::Time now) {
  for (uint64_t id : decision.ids) {
    lane.running.push_back(UnqueueLocked(id));
    lane.cost += policy_.Cost(lane.running.back()->cost_flops);
  }
  lane.taken = now;
  return lane.running;
}

// What the lane was running, if anything; to be dropped without the lock.
std::vector<WorkPtr> Scheduler::Impl::FinishGroupLocked(LaneState& lane) {
  if (!lane.running.empty()) rate_.Add(lane.cost, MonotonicNow() - lane.taken);
  lane.cost = 0;
  return std::exchange(lane.running, {});
}

// The request just queued, to run on the submitting thread with `lane`, which
// was idle and has not been notified. Empty: its own thread should look. Were
// anything else pending, the policy might let that lead, or join as company.
std::vector<WorkPtr> Scheduler::Impl::BorrowLocked(LaneState& lane,
                                                   const Footprint& footprint) {
  if (policy_.requests() != 1 ||
      footprint.key.options.algorithm != Algorithm::kAuto ||
      footprint.flops > options_.run_here_flops ||
      footprint.bytes() - footprint.scratch_bytes > kRunHereBytes) {
    return {};
  }
  const absl::Time now = MonotonicNow();
  const Decision decision = policy_.Next(lane.filter, now);
  if (decision.ids.empty()) return {};
  lane.borrowed = true;
  return TakeGroupLocked(lane, decision, now);
}

void Scheduler::Impl::RunHere(LaneState& lane, std::vector<WorkPtr> group) {
  lane.lane->Run(std::move(group));
  std::vector<WorkPtr> finished;
  std::lock_guard lock(mutex_);
  finished = FinishGroupLocked(lane);
  lane.borrowed = false;
  // Its thread may have been wanted meanwhile, or its time to look again gone.
  lane.idle = !stopping_ && (in_service_ & lane.filter.device) != 0 &&
              !policy_.Has(lane.filter);
  if (!lane.idle) lane.wake.notify_one();
}

void Scheduler::Impl::Complete(WorkPtr work,
                               absl::StatusOr<WorkResult> result) {
  absl::Status status = result.status();
  if (absl::IsCancelled(status) || absl::IsResourceExhausted(status)) {
    std::lock_guard lock(mutex_);
    if (absl::IsCancelled(status)) {
      result = CancelledStatusLocked(*work);
      drained_.erase(work->id);
    } else if (!wire::RetryDelay(status).has_value()) {
      result = wire::WithRetryInfo(std::move(status),
                                   rate_.RetryDelay(policy_.flops(), 1));
    }
  }
  if (work->release_inputs) std::exchange(work->release_inputs, nullptr)();
  // From here on only the outputs hold its bytes.
  work->charge.reset();
  std::exchange(work->done, nullptr)(std::move(result));
  work.reset();
  std::lock_guard lock(mutex_);
  if (--in_flight_ == 0) all_done_.notify_all();
}

void Scheduler::Impl::DeviceFault(int index, const absl::Status& status) {
  const int device = lanes_[index]->device;
  std::vector<Ended> ended;
  {
    std::lock_guard lock(mutex_);
    const uint64_t bit = uint64_t{1} << device;
    if ((in_service_ & bit) == 0) return;
    in_service_ &= ~bit;
    for (auto& lane : lanes_) {
      if (lane->device != device) continue;
      lane->idle = false;
      lane->wake.notify_one();
    }
    for (uint64_t id : policy_.TakeUnservable(in_service_)) {
      ended.push_back(
          {UnqueueLocked(id),
           absl::UnavailableError("no device that can run this is left")});
    }
  }
  {
    std::lock_guard lock(fault_mutex_);
    if (on_device_fault_) on_device_fault_(device, status);
  }
  CompleteAll(std::move(ended));
}

void Scheduler::Impl::SweepExpiredLocked(absl::Time now,
                                         std::vector<Ended>& ended) {
  for (uint64_t id : policy_.TakeExpired(now)) {
    ended.push_back({UnqueueLocked(id), absl::DeadlineExceededError(
                                            "past the deadline in the queue")});
  }
}

// The work that the policy has just let go of.
WorkPtr Scheduler::Impl::UnqueueLocked(uint64_t id) {
  auto node = queued_.extract(id);
  WorkPtr work = std::move(node.mapped());
  queue_requests_.Remove(work->client, 1);
  queue_flops_.Remove(work->client, work->cost_flops);
  return work;
}

// An idle lane for such a request, no longer idle; the caller notifies it,
// best without the lock. A lane for small requests comes first among equals.
Scheduler::Impl::LaneState* Scheduler::Impl::WakeLocked(bool small,
                                                        uint64_t devices) {
  for (auto& lane : lanes_) {
    if (!lane->idle || !lane->filter.Takes(small, devices)) continue;
    lane->idle = false;
    return lane.get();
  }
  return nullptr;
}

// A lane that was woken for one request may have taken another.
Scheduler::Impl::LaneState* Scheduler::Impl::WakeForLeftoversLocked() {
  if (policy_.requests() == 0) return nullptr;
  for (auto& lane : lanes_) {
    if (!lane->idle || !policy_.Has(lane->filter)) continue;
    lane->idle = false;
    return lane.get();
  }
  return nullptr;
}

int Scheduler::Impl::LanesInServiceLocked() const {
  return static_cast<int>(
      std::count_if(lanes_.begin(), lanes_.end(), [this](const auto& lane) {
        return (in_service_ & lane->filter.device) != 0;
      }));
}

absl::Status Scheduler::Impl::CancelledStatusLocked(const Work& work) const {
  if (drained_.contains(work.id)) {
    return absl::UnavailableError("the server is shutting down");
  }
  if (work.deadline <= MonotonicNow()) {
    return absl::DeadlineExceededError("past the deadline");
  }
  return absl::CancelledError("cancelled");
}

void Scheduler::Impl::CompleteAll(std::vector<Ended> ended) {
  for (Ended& end : ended) Complete(std::move(end.work), std::move(end.status));
}

void Scheduler::Impl::TrimPools() {
  const int64_t room = account_->limit_bytes() - account_->held_bytes();
  for (const auto& pool : pools_) pool->Trim(room);
}

}  // namespace attnd::server
