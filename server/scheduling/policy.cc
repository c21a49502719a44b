#include "server/scheduling/policy.h"

#include <algorithm>

namespace attnd::server {

Policy::Policy(const PolicyOptions& options) : options_(options) {
  classes_[static_cast<size_t>(Priority::kLow)].weight = 1;
  classes_[static_cast<size_t>(Priority::kNormal)].weight = 4;
  classes_[static_cast<size_t>(Priority::kHigh)].weight = 16;
}

// What joins no group anyway, and no lane for small requests takes, may be
// paused: it is alone on its lane.
Kind Policy::Sized(Kind kind, double flops, int64_t bytes) const {
  kind.small = !kind.paused && flops <= options_.small_request_flops &&
               bytes <= options_.small_request_bytes;
  kind.large = !kind.paused && !kind.small && flops > options_.max_batch_flops;
  return kind;
}

void Policy::PutBack(Pending request) {
  Class& c = ClassOf(request);
  c.start = std::max(c.start - request.flops / c.weight, virtual_time_);
  c.queue.GiveBack(request, request.flops);
  request.paused = true;
  Add(std::move(request));
}

void Policy::Add(Pending request) {
  const Kind kind = Sized(request.kind(), request.flops, request.bytes);
  request.small = kind.small;
  request.large = kind.large;
  auto owned = std::make_unique<Pending>(std::move(request));
  const Pending* p = owned.get();
  pending_.emplace(p->id, std::move(owned));
  if (p->deadline != absl::InfiniteFuture()) {
    deadlines_.emplace(p->deadline, p->id);
  }
  Group& group = GroupOf(p->kind());
  ++group.requests;
  group.flops += p->flops;
  flops_ += p->flops;
  Class& c = ClassOf(*p);
  if (c.queue.empty()) c.start = std::max(c.start, virtual_time_);
  c.queue.Add(p);
}

bool Policy::Remove(uint64_t id) {
  auto found = pending_.find(id);
  if (found == pending_.end()) return false;
  const Pending* p = found->second.get();
  ClassOf(*p).queue.Remove(p);
  Forget(p);
  return true;
}

Decision Policy::Next(const LaneFilter& lane, absl::Time now) {
  Decision decision;
  const Pending* leader = First([&](const Pending& p) {
    if (!lane.Takes(p.kind())) return false;
    if (Ready(p, now)) return true;
    decision.ask_again =
        std::min(decision.ask_again, p.admitted + options_.max_batch_delay);
    return false;
  });
  if (leader == nullptr) return decision;
  decision.ask_again = absl::InfiniteFuture();
  decision.large = leader->large || leader->paused;
  if (decision.large) {
    decision.ids.push_back(leader->id);
    Take(leader);
    return decision;
  }
  const GroupKey key = leader->key;
  double flops = 0;
  for (const Pending* next = leader; next != nullptr;) {
    flops += next->flops;
    decision.ids.push_back(next->id);
    Take(next);
    if (decision.ids.size() >= options_.max_batch_requests) break;
    const bool more =
        std::any_of(groups_.begin(), groups_.end(), [&](const Group& group) {
          return group.kind.key == key && !group.kind.paused;
        });
    if (!more) break;
    next = First([&](const Pending& p) {
      return p.key == key && !p.paused && lane.Takes(p.kind());
    });
    // What does not fit leads its own group; nothing behind it overtakes.
    if (next != nullptr && flops + next->flops > options_.max_batch_flops)
      break;
  }
  return decision;
}

std::vector<uint64_t> Policy::TakeExpired(absl::Time now) {
  std::vector<uint64_t> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    expired.push_back(deadlines_.begin()->second);
    Remove(expired.back());
  }
  return expired;
}

std::vector<uint64_t> Policy::TakeUnservable(uint64_t devices) {
  std::vector<uint64_t> unservable;
  for (const auto& [id, p] : pending_) {
    if ((p->devices & devices) == 0) unservable.push_back(id);
  }
  std::sort(unservable.begin(), unservable.end());
  for (uint64_t id : unservable) Remove(id);
  return unservable;
}

bool Policy::Has(const LaneFilter& lane) const {
  return std::any_of(groups_.begin(), groups_.end(), [&](const Group& group) {
    return lane.Takes(group.kind);
  });
}

int64_t Policy::clients() const {
  int64_t clients = 0;
  for (const Class& c : classes_) clients += c.queue.clients();
  return clients;
}

const Pending* Policy::First(
    absl::FunctionRef<bool(const Pending&)> accept) const {
  // By tag, then from high to low.
  std::array<const Class*, 3> order = {&classes_[2], &classes_[1],
                                       &classes_[0]};
  std::stable_sort(
      order.begin(), order.end(),
      [](const Class* a, const Class* b) { return a->start < b->start; });
  for (const Class* c : order) {
    if (const Pending* p = c->queue.First(accept)) return p;
  }
  return nullptr;
}

bool Policy::Ready(const Pending& leader, absl::Time now) const {
  if (leader.large || leader.paused) return true;
  if (leader.admitted + options_.max_batch_delay <= now) return true;
  int64_t requests = 0;
  double flops = 0;
  for (const Group& group : groups_) {
    if (group.kind.key != leader.key || group.kind.paused) continue;
    requests += group.requests;
    flops += group.flops;
  }
  return requests >= options_.max_batch_requests ||
         flops >= options_.max_batch_flops;
}

void Policy::Take(const Pending* request) {
  Class& c = ClassOf(*request);
  const double cost = Cost(request->flops);
  virtual_time_ = std::max(virtual_time_, c.start);
  c.start += cost / c.weight;
  c.queue.Take(request, cost);
  Forget(request);
}

void Policy::Forget(const Pending* request) {
  auto group =
      std::find_if(groups_.begin(), groups_.end(),
                   [&](const Group& g) { return g.kind == request->kind(); });
  group->flops -= request->flops;
  if (--group->requests == 0) groups_.erase(group);
  flops_ -= request->flops;
  deadlines_.erase({request->deadline, request->id});
  pending_.erase(request->id);
  if (!pending_.empty()) return;
  // Nobody waited: whoever comes next owes nobody anything.
  flops_ = 0;
  virtual_time_ = 0;
  for (Class& c : classes_) {
    c.start = 0;
    c.queue.ForgetIdle();
  }
}

Policy::Group& Policy::GroupOf(const Kind& kind) {
  auto group = std::find_if(groups_.begin(), groups_.end(),
                            [&](const Group& g) { return g.kind == kind; });
  if (group == groups_.end()) group = groups_.insert(group, Group{kind});
  return *group;
}

}  // namespace attnd::server
