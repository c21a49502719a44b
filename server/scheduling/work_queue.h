#ifndef ATTND_SERVER_SCHEDULING_WORK_QUEUE_H_
#define ATTND_SERVER_SCHEDULING_WORK_QUEUE_H_

// The work that waits for a lane: how much of it there may be, each client's
// share of that, and, through the policy, what runs next.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/execution/group_run.h"
#include "server/scheduling/admission.h"
#include "server/scheduling/options.h"
#include "server/scheduling/policy.h"
#include "server/work/client_shares.h"
#include "server/work/work.h"

namespace attnd::server {

// A work that waits, with its run if that was paused.
struct Waiting {
  WorkPtr work;  // null: none
  std::unique_ptr<GroupRun> run;
};

// Not thread-safe. What leaves it is the caller's to run or to complete.
class WorkQueue {
 public:
  explicit WorkQueue(const SchedulerOptions& options);

  // Keeps a place for a request of `flops` from `client`, which counts as if it
  // waited here, until it is added or GiveUpPlace is called.
  // RESOURCE_EXHAUSTED, without a retry delay: there is no room now, or
  // (kClientFlops) more than `most_flops` of the client would wait; 0: no such
  // limit.
  static constexpr absl::string_view kClientFlops =
      "the client's limit of queued work (--max_client_queue_flops) is reached";
  absl::Status TakePlace(const std::string& client, double flops,
                         double most_flops = 0);
  void GiveUpPlace(const std::string& client, double flops);
  // Queues `work`, whose place was taken, for `devices` (bit d: device d), and
  // gives it its id.
  void Add(const WorkPtr& work, const Footprint& footprint, uint64_t devices);
  // Queues `work` again, whose run on `device` (one bit) was paused, under
  // another id and whatever else waits.
  void PutBack(const WorkPtr& work, std::unique_ptr<GroupRun> run,
               uint64_t device);

  // What a lane should run now, all of one GroupKey.
  struct Group {
    std::vector<WorkPtr> works;     // empty: nothing yet
    std::unique_ptr<GroupRun> run;  // theirs, if it was paused
    bool may_pause = false;         // one large work
    double cost = 0;                // see Policy::Cost
    // When to ask again if nothing else happens before.
    absl::Time ask_again = absl::InfiniteFuture();
  };
  Group Take(const LaneFilter& lane, absl::Time now);
  // Null: no such work waits here.
  Waiting Remove(uint64_t id);
  // What is past its deadline.
  std::vector<Waiting> TakeExpired(absl::Time now);
  // All that none of `devices` can run.
  std::vector<Waiting> TakeUnservable(uint64_t devices);
  // From now on nothing waits for company.
  void StopWaiting() { policy_.StopWaiting(); }

  // Whether anything waits that such a lane could take.
  bool Has(const LaneFilter& lane) const { return policy_.Has(lane); }
  // As lanes see a work for `devices` that is to begin.
  Kind KindOf(const Footprint& footprint, uint64_t devices) const;
  int64_t requests() const { return policy_.requests(); }
  double flops() const { return policy_.flops(); }
  // When the one that has waited longest came, of those that have not begun;
  // the infinite future: there is none.
  absl::Time oldest() const {
    return not_begun_.empty() ? absl::InfiniteFuture()
                              : not_begun_.begin()->first;
  }
  // What it costs to run all of it, more than 0 even when it is empty.
  double cost() const { return policy_.Cost(policy_.flops()); }

 private:
  // One whose request is no longer on its way.
  void LeavePlace(double flops);
  // What the policy hears of it, whichever devices it is for.
  static Pending Describe(const Work& work);
  // The work that the policy has just let go of.
  Waiting Extract(uint64_t id);
  std::vector<Waiting> ExtractAll(const std::vector<uint64_t>& ids);

  const int64_t max_requests_;
  const double max_flops_;
  Policy policy_;
  absl::flat_hash_map<uint64_t, Waiting> waiting_;  // by id
  // When those of them that have not begun were admitted, with their ids.
  absl::btree_set<std::pair<absl::Time, uint64_t>> not_begun_;
  // Of what waits, and of places that were taken for others.
  ClientShares request_shares_, flops_shares_;
  int64_t places_ = 0;
  double place_flops_ = 0;
  uint64_t last_id_ = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_WORK_QUEUE_H_
