#include "server/scheduling/work_queue.h"

#include <utility>

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

}  // namespace

WorkQueue::WorkQueue(const SchedulerOptions& options)
    : max_requests_(options.max_queue_requests),
      max_flops_(options.max_queue_flops),
      policy_(MakePolicyOptions(options)),
      request_shares_(static_cast<double>(options.max_queue_requests)),
      flops_shares_(options.max_queue_flops) {}

absl::Status WorkQueue::TakePlace(const std::string& client, double flops) {
  if (policy_.requests() + places_ >= max_requests_ ||
      !request_shares_.MayAdd(client)) {
    return absl::ResourceExhaustedError("too many requests wait");
  }
  if (policy_.flops() + place_flops_ + flops > max_flops_ ||
      !flops_shares_.MayAdd(client)) {
    return absl::ResourceExhaustedError("too much work waits");
  }
  request_shares_.Add(client, 1);
  flops_shares_.Add(client, flops);
  ++places_;
  place_flops_ += flops;
  return absl::OkStatus();
}

void WorkQueue::LeavePlace(double flops) {
  place_flops_ -= flops;
  // No rounding is left behind.
  if (--places_ == 0) place_flops_ = 0;
}

void WorkQueue::GiveUpPlace(const std::string& client, double flops) {
  LeavePlace(flops);
  request_shares_.Remove(client, 1);
  flops_shares_.Remove(client, flops);
}

void WorkQueue::Add(const WorkPtr& work, const Footprint& footprint,
                    uint64_t devices) {
  work->id = ++last_id_;
  work->cost_flops = footprint.flops;
  LeavePlace(footprint.flops);
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
  works_.emplace(work->id, work);
}

WorkQueue::Group WorkQueue::Take(const LaneFilter& lane, absl::Time now) {
  const Decision decision = policy_.Next(lane, now);
  Group group;
  group.ask_again = decision.ask_again;
  group.works = ExtractAll(decision.ids);
  for (const WorkPtr& work : group.works) {
    group.cost += policy_.Cost(work->cost_flops);
  }
  return group;
}

WorkPtr WorkQueue::Remove(uint64_t id) {
  return policy_.Remove(id) ? Extract(id) : nullptr;
}

std::vector<WorkPtr> WorkQueue::TakeExpired(absl::Time now) {
  return ExtractAll(policy_.TakeExpired(now));
}

std::vector<WorkPtr> WorkQueue::TakeUnservable(uint64_t devices) {
  return ExtractAll(policy_.TakeUnservable(devices));
}

WorkPtr WorkQueue::Extract(uint64_t id) {
  auto node = works_.extract(id);
  WorkPtr work = std::move(node.mapped());
  request_shares_.Remove(work->client, 1);
  flops_shares_.Remove(work->client, work->cost_flops);
  return work;
}

std::vector<WorkPtr> WorkQueue::ExtractAll(const std::vector<uint64_t>& ids) {
  std::vector<WorkPtr> works;
  works.reserve(ids.size());
  for (uint64_t id : ids) works.push_back(Extract(id));
  return works;
}

}  // namespace attnd::server
