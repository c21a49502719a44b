#include "server/scheduling/work_queue.h"

#include <utility>

#include "server/scheduling/call_refusal.h"

namespace attnd::server {
namespace {

PolicyOptions MakePolicyOptions(const SchedulerOptions& options) {
  PolicyOptions policy;
  policy.small_request_flops = options.small_request_flops;
  policy.small_request_bytes = options.small_request_bytes;
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

absl::Status WorkQueue::TakePlace(const std::string& client, double flops,
                                  double most_flops) {
  if (most_flops > 0 && flops_shares_.Of(client) + flops > most_flops) {
    return Refused(CallRefusal::kMaxClientQueueFlops,
                   absl::ResourceExhaustedError(kClientFlops));
  }
  if (policy_.requests() + places_ >= max_requests_ ||
      !request_shares_.MayAdd(client)) {
    return Refused(CallRefusal::kQueueFull,
                   absl::ResourceExhaustedError("too many requests wait"));
  }
  if (policy_.flops() + place_flops_ + flops > max_flops_ ||
      !flops_shares_.MayAdd(client)) {
    return Refused(CallRefusal::kQueueFlops,
                   absl::ResourceExhaustedError("too much work waits"));
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
  LeavePlace(footprint.flops);
  work->id = ++last_id_;
  work->plan = footprint.plan;
  work->cost_flops = footprint.flops;
  work->cost_bytes = footprint.moved_bytes();
  Pending pending = Describe(*work);
  pending.key = footprint.key;
  pending.devices = devices;
  policy_.Add(std::move(pending));
  waiting_.emplace(work->id, Waiting{work, nullptr});
  not_begun_.emplace(work->admitted, work->id);
}

void WorkQueue::PutBack(const WorkPtr& work, std::unique_ptr<GroupRun> run,
                        uint64_t device) {
  work->id = ++last_id_;
  work->cost_flops *= run->left();
  request_shares_.Add(work->client, 1);
  flops_shares_.Add(work->client, work->cost_flops);
  // It joins no group, so its key does not matter.
  Pending pending = Describe(*work);
  pending.devices = device;
  policy_.PutBack(std::move(pending));
  waiting_.emplace(work->id, Waiting{work, std::move(run)});
}

Pending WorkQueue::Describe(const Work& work) {
  Pending pending;
  pending.id = work.id;
  pending.priority = work.priority;
  pending.client = work.client;
  pending.shares = work.quota.shares;
  pending.flops = work.cost_flops;
  pending.bytes = work.cost_bytes;
  pending.admitted = work.admitted;
  pending.deadline = work.deadline;
  return pending;
}

WorkQueue::Group WorkQueue::Take(const LaneFilter& lane, absl::Time now) {
  const Decision decision = policy_.Next(lane, now);
  Group group;
  group.may_pause = decision.large;
  group.ask_again = decision.ask_again;
  for (Waiting& waiting : ExtractAll(decision.ids)) {
    group.cost += policy_.Cost(waiting.work->cost_flops);
    group.works.push_back(std::move(waiting.work));
    group.run = std::move(waiting.run);
  }
  return group;
}

Waiting WorkQueue::Remove(uint64_t id) {
  return policy_.Remove(id) ? Extract(id) : Waiting{};
}

std::vector<Waiting> WorkQueue::TakeExpired(absl::Time now) {
  return ExtractAll(policy_.TakeExpired(now));
}

std::vector<Waiting> WorkQueue::TakeUnservable(uint64_t devices) {
  return ExtractAll(policy_.TakeUnservable(devices));
}

Kind WorkQueue::KindOf(const Footprint& footprint, uint64_t devices) const {
  Kind kind;
  kind.key = footprint.key;
  kind.devices = devices;
  return policy_.Sized(kind, footprint.flops, footprint.moved_bytes());
}

Waiting WorkQueue::Extract(uint64_t id) {
  auto node = waiting_.extract(id);
  Waiting waiting = std::move(node.mapped());
  if (waiting.run == nullptr) not_begun_.erase({waiting.work->admitted, id});
  request_shares_.Remove(waiting.work->client, 1);
  flops_shares_.Remove(waiting.work->client, waiting.work->cost_flops);
  return waiting;
}

std::vector<Waiting> WorkQueue::ExtractAll(const std::vector<uint64_t>& ids) {
  std::vector<Waiting> all;
  all.reserve(ids.size());
  for (uint64_t id : ids) all.push_back(Extract(id));
  return all;
}

}  // namespace attnd::server
