#include "server/scheduling/lane_roster.h"

#include <algorithm>
#include <utility>

namespace attnd::server {

int LaneRoster::MaxLarge(int lanes_per_device) {
  return std::max(2, lanes_per_device - 1);
}

LaneRoster::LaneRoster(int devices, int lanes_per_device)
    : max_large_(MaxLarge(lanes_per_device)), large_(devices) {
  for (int device = 0; device < devices; ++device) {
    in_service_ |= uint64_t{1} << device;
    for (int i = 0; i < lanes_per_device; ++i) {
      lanes_.push_back(std::make_unique<Entry>(
          static_cast<int>(lanes_.size()), device,
          /*small_only=*/i == 0 && lanes_per_device > 1));
    }
  }
}

LaneFilter LaneRoster::Filter(const Entry& lane) const {
  return {.device = uint64_t{1} << lane.device_,
          .small_only = lane.small_only_,
          .may_begin_large = large_[lane.device_] < max_large_};
}

LaneRoster::Entry* LaneRoster::Wake(const Kind& kind) {
  for (auto& lane : lanes_) {
    if (!lane->idle_ || !Filter(*lane).Takes(kind)) continue;
    lane->idle_ = false;
    return lane.get();
  }
  return nullptr;
}

LaneRoster::Entry* LaneRoster::WakeFor(const WorkQueue& queue) {
  if (queue.requests() == 0) return nullptr;
  for (auto& lane : lanes_) {
    if (!lane->idle_ || !queue.Has(Filter(*lane))) continue;
    lane->idle_ = false;
    return lane.get();
  }
  return nullptr;
}

LaneRoster::Entry* LaneRoster::WakeAny(int device) {
  for (auto& lane : lanes_) {
    if (!lane->idle_ || lane->device_ != device) continue;
    lane->idle_ = false;
    return lane.get();
  }
  return nullptr;
}

void LaneRoster::WakeAll() {
  for (auto& lane : lanes_) {
    lane->idle_ = false;
    lane->Notify();
  }
}

void LaneRoster::WaitForWork(Entry& lane, absl::Time ask_again,
                             MutexLock& lock) {
  lane.idle_ = true;
  lane.wake_.WaitUntil(lock, ask_again,
                       [&lane] { return !lane.idle_ && !lane.borrowed_; });
  lane.wake_.Wait(lock, [&lane] { return !lane.borrowed_; });
  lane.idle_ = false;
}

void LaneRoster::Start(Entry& lane, const WorkQueue::Group& group,
                       absl::Time now) {
  lane.running_ = group.works;
  lane.large_ = group.may_pause;
  if (lane.large_ && group.run == nullptr) ++large_[lane.device_];
  lane.cost_ = group.cost;
  lane.taken_ = now;
}

std::vector<WorkPtr> LaneRoster::Finish(Entry& lane, absl::Time now) {
  if (std::exchange(lane.large_, false)) --large_[lane.device_];
  if (!lane.running_.empty()) {
    rate_.Add(lane.cost_, now - lane.taken_);
    lane.busy_time_ += now - lane.taken_;
  }
  lane.cost_ = 0;
  return std::exchange(lane.running_, {});
}

std::vector<WorkPtr> LaneRoster::Pause(Entry& lane, double left,
                                       absl::Time now) {
  ++large_[lane.device_];
  lane.cost_ *= 1 - left;
  return Finish(lane, now);
}

void LaneRoster::Return(Entry& lane, bool wanted) {
  lane.borrowed_ = false;
  lane.idle_ = InService(lane) && !wanted;
  if (!lane.idle_) lane.Notify();
}

void LaneRoster::ForEachRunning(absl::FunctionRef<void(Work&)> function) const {
  for (const auto& lane : lanes_) {
    for (const WorkPtr& work : lane->running_) function(*work);
  }
}

void LaneRoster::ForEachLarge(
    absl::FunctionRef<void(const Entry&)> function) const {
  for (const auto& lane : lanes_) {
    if (lane->large_) function(*lane);
  }
}

LaneStats LaneRoster::stats(int device, absl::Time now) const {
  LaneStats stats;
  for (const auto& lane : lanes_) {
    if (lane->device_ != device) continue;
    ++stats.lanes;
    stats.busy_time += lane->busy_time_;
    if (lane->running_.empty()) continue;
    ++stats.busy;
    const absl::Duration runs = now - lane->taken_;
    stats.busy_time += runs;
    stats.longest = std::max(stats.longest, runs);
  }
  return stats;
}

bool LaneRoster::TakeOutOfService(int device) {
  const uint64_t bit = uint64_t{1} << device;
  if ((in_service_ & bit) == 0) return false;
  in_service_ &= ~bit;
  for (auto& lane : lanes_) {
    if (lane->device_ != device) continue;
    lane->idle_ = false;
    lane->Notify();
  }
  return true;
}

absl::Duration LaneRoster::RetryDelay(double waiting_cost) const {
  double cost = waiting_cost;
  int lanes = 0;
  for (const auto& lane : lanes_) {
    cost += lane->cost_;
    if (InService(*lane)) ++lanes;
  }
  return rate_.RetryDelay(cost, lanes);
}

}  // namespace attnd::server
