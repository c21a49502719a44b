#include "server/scheduling/fair_queue.h"

#include <algorithm>

namespace attnd::server {
namespace {

// A flood of clients that come once and never again costs only this many
// remembered debts.
constexpr size_t kMaxIdleFlows = 1024;

}  // namespace

void FairQueue::Add(const Pending* request) {
  std::unique_ptr<Flow>& slot = flows_[request->client];
  if (slot == nullptr) {
    slot = std::make_unique<Flow>();
    slot->client = request->client;
  }
  Flow& flow = *slot;
  if (flow.lines.empty()) {
    idle_.erase(&flow);
    flow.start = std::max(flow.start, virtual_time_);
    flow.turn = ++turns_;
    active_.insert(&flow);
  }
  const Kind kind = request->kind();
  auto line = std::find_if(flow.lines.begin(), flow.lines.end(),
                           [&](const Line& l) { return l.kind == kind; });
  if (line == flow.lines.end()) {
    line = flow.lines.insert(line, Line{kind, {}});
  }
  line->requests.emplace(request->id, request);
}

void FairQueue::Remove(const Pending* request) {
  Flow& flow = *flows_.at(request->client);
  active_.erase(&flow);
  Erase(flow, request);
  Place(flow);
}

void FairQueue::Take(const Pending* request, double cost) {
  Flow& flow = *flows_.at(request->client);
  active_.erase(&flow);
  Erase(flow, request);
  // A flow whose requests no free lane could take lags behind: time only grows.
  virtual_time_ = std::max(virtual_time_, flow.start);
  flow.start += cost / request->shares;
  flow.turn = ++turns_;
  Place(flow);
  while (!idle_.empty() && ((*idle_.begin())->start <= virtual_time_ ||
                            idle_.size() > kMaxIdleFlows)) {
    Flow* settled = *idle_.begin();
    idle_.erase(idle_.begin());
    flows_.erase(settled->client);
  }
}

void FairQueue::GiveBack(const Pending& request, double cost) {
  auto found = flows_.find(request.client);
  if (found == flows_.end()) return;
  Flow& flow = *found->second;
  (flow.lines.empty() ? idle_ : active_).erase(&flow);
  flow.start = std::max(flow.start - cost / request.shares, virtual_time_);
  Place(flow);
}

const Pending* FairQueue::First(
    absl::FunctionRef<bool(const Pending&)> accept) const {
  for (const Flow* flow : active_) {
    const Pending* first = nullptr;
    for (const Line& line : flow->lines) {
      const Pending* head = line.requests.begin()->second;
      if ((first == nullptr || head->id < first->id) && accept(*head)) {
        first = head;
      }
    }
    if (first != nullptr) return first;
  }
  return nullptr;
}

void FairQueue::ForgetIdle() {
  for (Flow* flow : idle_) flows_.erase(flow->client);
  idle_.clear();
  if (active_.empty()) virtual_time_ = 0;
}

void FairQueue::Erase(Flow& flow, const Pending* request) {
  const Kind kind = request->kind();
  auto line = std::find_if(flow.lines.begin(), flow.lines.end(),
                           [&](const Line& l) { return l.kind == kind; });
  line->requests.erase(request->id);
  if (line->requests.empty()) flow.lines.erase(line);
}

void FairQueue::Place(Flow& flow) {
  if (!flow.lines.empty()) {
    active_.insert(&flow);
  } else if (flow.start > virtual_time_) {
    idle_.insert(&flow);
  } else {
    flows_.erase(flow.client);
  }
}

}  // namespace attnd::server
