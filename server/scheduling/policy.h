#ifndef ATTND_SERVER_SCHEDULING_POLICY_H_
#define ATTND_SERVER_SCHEDULING_POLICY_H_

// What runs next: decided from what is pending and the time given, without
// clock, threads or locks of its own.
//
//   priorities   shares of 16 : 4 : 1 by cost while all have work, by the same
//                tags as clients (fair_queue.h): none starves
//   clients      equal shares by cost within a priority, or so many times
//                another's as they have been given
//   requests     in order of admission within a client, except that a lane for
//                small requests, or of another device, passes over what it
//                cannot take
//   large ones   begin if the lane's device may have one more of them; one that
//                was paused goes behind what its client has sent meanwhile, and
//                its client has paid only for what has run
//   groups       what leads is joined by compatible requests in the same order
//                until a limit is reached

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "server/scheduling/fair_queue.h"

namespace attnd::server {

struct PolicyOptions {
  double small_request_flops = 1e8;
  int64_t small_request_bytes = int64_t{1} << 20;
  int max_batch_requests = 64;
  double max_batch_flops = 1e9;
  absl::Duration max_batch_delay = absl::ZeroDuration();
  // What a request costs its client beside its FLOPs: about what a device could
  // do in the time that a request of none takes.
  double request_floor_flops = 1e6;
};

// What a lane can take.
struct LaneFilter {
  uint64_t device = 1;  // one bit, as in Pending::devices
  bool small_only = false;
  bool may_begin_large = true;

  bool Takes(const Kind& kind) const {
    return (kind.devices & device) != 0 && (kind.small || !small_only) &&
           (may_begin_large || !kind.large);
  }
};

struct Decision {
  std::vector<uint64_t> ids;  // a group to run now; empty: nothing yet
  bool large = false;         // it is one that may be paused
  // When to ask again if nothing else happens before.
  absl::Time ask_again = absl::InfiniteFuture();
};

// Not thread-safe.
class Policy {
 public:
  explicit Policy(const PolicyOptions& options);

  // Ids grow from call to call.
  void Add(Pending request);
  // What Next has given out and has run but for `request.flops`, under a new
  // id: its client gets back what it has paid for those.
  void PutBack(Pending request);
  // False: not pending.
  bool Remove(uint64_t id);
  // The group that a lane should run now; it is no longer pending, and paid.
  Decision Next(const LaneFilter& lane, absl::Time now);
  // Takes out what is past its deadline.
  std::vector<uint64_t> TakeExpired(absl::Time now);
  // Takes out all that none of `devices` can run.
  std::vector<uint64_t> TakeUnservable(uint64_t devices);
  // From now on nothing waits for company.
  void StopWaiting() { options_.max_batch_delay = absl::ZeroDuration(); }

  bool Has(const LaneFilter& lane) const;
  // `kind` with its size filled in.
  Kind Sized(Kind kind, double flops, int64_t bytes) const;
  double Cost(double flops) const {
    return flops + options_.request_floor_flops;
  }
  int64_t requests() const { return static_cast<int64_t>(pending_.size()); }
  double flops() const { return pending_.empty() ? 0 : flops_; }
  int64_t clients() const;

 private:
  struct Class {
    double weight = 1;
    double start = 0;
    FairQueue queue;
  };
  struct Group {
    Kind kind;
    int64_t requests = 0;
    double flops = 0;
  };

  Class& ClassOf(const Pending& p) {
    return classes_[static_cast<size_t>(p.priority)];
  }
  const Pending* First(absl::FunctionRef<bool(const Pending&)> accept) const;
  // Whether a group led by `leader` need not wait for company any more.
  bool Ready(const Pending& leader, absl::Time now) const;
  void Take(const Pending* request);
  // After a FairQueue has let go of it.
  void Forget(const Pending* request);
  Group& GroupOf(const Kind& kind);

  PolicyOptions options_;
  std::array<Class, 3> classes_;  // by Priority
  double virtual_time_ = 0;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Pending>> pending_;
  std::set<std::pair<absl::Time, uint64_t>> deadlines_;  // finite ones
  std::vector<Group> groups_;                            // none empty
  double flops_ = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_POLICY_H_
