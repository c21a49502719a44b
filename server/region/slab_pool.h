#ifndef ATTND_SERVER_REGION_SLAB_POOL_H_
#define ATTND_SERVER_REGION_SLAB_POOL_H_

// Slabs that wait for a client, filled and pinned, and those that take their
// place.

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log_line.h"
#include "base/mutex.h"
#include "server/region/divide_regions.h"
#include "server/region/keeper.h"
#include "server/region/slab.h"

namespace attnd::server {

struct SlabPoolStats {
  int64_t free_bytes = 0;  // of slabs that can be taken
  int64_t replaced = 0;    // slabs that were made for one that was given back
  // Pieces that were pinned: before the pool could be used, and since then by
  // the keeper. Nobody else pins any.
  int64_t pinned_at_start = 0;
  int64_t pinned_by_keeper = 0;
};

// Thread-safe. Taking a slab makes, fills and pins nothing, nor does giving one
// back: the keeper does, in small steps with pauses, so that whoever needs the
// driver waits for one piece at most.
class SlabPool {
 public:
  struct Parts {
    std::vector<SlabClass> classes;  // ascending
    std::vector<int> numa_nodes;     // slabs lie on these in turn; empty: any
    std::vector<Backend*> pinners;   // Slab::Spec
    std::shared_ptr<Keeper> keeper;  // stopped before the pool goes
    WriteLine log;                   // may be empty
    // After pinning or unpinning a piece the keeper pauses for so many times as
    // long as that took, within these limits: far fewer than one request in a
    // hundred meets it at that, and where pinning is nothing, filling does not
    // take a processor for itself.
    int pause_factor = 200;
    absl::Duration least_pause = absl::Milliseconds(100);
    absl::Duration most_pause = absl::Seconds(1);
    // And for so long after a slab could not be made.
    absl::Duration retry_pause = absl::Seconds(5);
  };

  // With all slabs, which threads of its own make. RESOURCE_EXHAUSTED: there is
  // no memory for them, or it cannot be pinned.
  static absl::StatusOr<std::shared_ptr<SlabPool>> Start(Parts parts);
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  // The smallest free slab of at least `bytes`, for one client.
  //   INVALID_ARGUMENT    none is so large
  //   RESOURCE_EXHAUSTED  none of those is free now; carries RetryInfo
  absl::StatusOr<std::unique_ptr<Slab>> Take(int64_t bytes);
  // What was taken and nobody else has seen.
  void PutBack(std::unique_ptr<Slab> slab);
  // What was taken, once nobody uses it any more; another is made for it. Calls
  // `then` when whoever still maps it sees no more of it than zeros. Never
  // blocks.
  void GiveBack(std::unique_ptr<Slab> slab, Keeper::Task then);

  int64_t largest_bytes() const;
  SlabPoolStats stats() const;

 private:
  // A slab that the keeper makes.
  struct Making {
    std::unique_ptr<Slab> slab;
    int piece = 0;       // that is being filled
    int64_t filled = 0;  // of all
  };

  explicit SlabPool(Parts parts) : parts_(std::move(parts)) {}
  absl::Status MakeAll();
  // The keeper's. A step ends a slab that was given back, or makes another, in
  // part.
  void ScheduleStep(absl::Time due);
  void Step();
  absl::Duration RetireSome();
  absl::Duration MakeSome();
  absl::Status TryMakeSome(absl::Duration& pause);
  absl::Duration PauseAfter(absl::Time start) const;

  const Parts parts_;
  // The keeper's thread's.
  std::deque<std::unique_ptr<Slab>> retired_;  // emptied, and partly pinned
  std::deque<Slab::Spec> wanted_;  // the first of which is being made
  Making making_;
  bool step_is_due_ = false;
  bool said_why_ = false;  // why the slab that is wanted cannot be made

  mutable Mutex mutex_;
  absl::btree_map<int64_t, std::vector<std::unique_ptr<Slab>>> free_
      ABSL_GUARDED_BY(mutex_);  // by bytes, of all classes
  SlabPoolStats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_SLAB_POOL_H_
