#ifndef ATTND_SERVER_SCHEDULING_FAIR_QUEUE_H_
#define ATTND_SERVER_SCHEDULING_FAIR_QUEUE_H_

// Requests that wait, shared out fairly between clients by cost: start-time
// fair queueing (Goyal, Vin and Cheng, 1996). Each client's next request has a
// start tag; the smallest runs next, and its cost moves the client's tag. A
// client that was idle starts at the virtual time, the tag of what ran last: it
// has saved up nothing, and a client that leaves and returns still owes. A
// client with more than one share has its tag moved by so much less.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "server/work/group_key.h"
#include "server/work/work.h"

namespace attnd::server {

// Requests of one kind are interchangeable to a lane: it takes all or none.
struct Kind {
  GroupKey key;
  bool small = false;     // may run on a lane for small requests
  bool large = false;     // has yet to begin, and may then be paused
  bool paused = false;    // has run in part
  uint64_t devices = ~0;  // bit d: device d has a kernel for it

  friend bool operator==(const Kind&, const Kind&) = default;
};

// A request as the policy sees it.
struct Pending {
  uint64_t id = 0;  // grows with every admission, and every return
  Priority priority = Priority::kNormal;
  std::string client;
  double shares = 1;  // of its client, beside others' one each
  GroupKey key;
  double flops = 0;
  int64_t bytes = 0;  // in and out
  uint64_t devices = ~0;
  absl::Time admitted;
  absl::Time deadline = absl::InfiniteFuture();
  bool paused = false;
  bool small = false, large = false;  // filled by the policy

  Kind kind() const { return {key, small, large, paused, devices}; }
};

// Not thread-safe. Holds pointers to the caller's Pendings, which stay where
// they are while they are in here.
class FairQueue {
 public:
  void Add(const Pending* request);
  // `request`, which is in the queue, leaves without having run.
  void Remove(const Pending* request);
  // `request`, which is in the queue, runs: its client pays `cost`, by its
  // shares.
  void Take(const Pending* request, double cost);

  // `request`, which is not in the queue, ran and has cost so much less than
  // was paid. What has been forgotten is not owed any more, and credit there is
  // none.
  void GiveBack(const Pending& request, double cost);

  // What should run next among requests that `accept` takes; null if none.
  // `accept` sees only the oldest request of each client and kind, as those of
  // one kind run in order of admission.
  const Pending* First(absl::FunctionRef<bool(const Pending&)> accept) const;

  bool empty() const { return active_.empty(); }
  // Forgets what idle clients owe.
  void ForgetIdle();
  // Clients remembered: those with requests here and those that still owe.
  int64_t clients() const { return static_cast<int64_t>(flows_.size()); }

 private:
  struct Line {
    Kind kind;
    absl::btree_map<uint64_t, const Pending*> requests;  // by id
  };
  struct Flow {
    std::string client;
    double start = 0;         // tag of its next request
    uint64_t turn = 0;        // among equal tags, who came first
    std::vector<Line> lines;  // none empty
  };
  struct Before {
    bool operator()(const Flow* a, const Flow* b) const {
      return a->start != b->start ? a->start < b->start : a->turn < b->turn;
    }
  };

  void Erase(Flow& flow, const Pending* request);
  // Puts `flow`, which is in neither set, where it belongs.
  void Place(Flow& flow);

  absl::flat_hash_map<std::string, std::unique_ptr<Flow>> flows_;
  std::set<Flow*, Before> active_;  // with requests
  std::set<Flow*, Before> idle_;    // without, start still ahead of time
  double virtual_time_ = 0;
  uint64_t turns_ = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_FAIR_QUEUE_H_
