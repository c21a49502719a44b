#ifndef ATTND_SERVER_SCHEDULING_SCHEDULER_H_
#define ATTND_SERVER_SCHEDULING_SCHEDULER_H_

// Admits work, decides what runs next and hands groups to lanes. Work
// conserving: nothing waits while a lane is free for it, unless
// max_batch_delay says so; groups form because lanes are busy. No gRPC here.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "server/work/account.h"
#include "server/work/work.h"

namespace attnd::server {

// See SchedulerOptions::run_here_flops: what attnd uses, some 10 us of a CPU,
// and what goes with any.
inline constexpr double kRunHereFlops = 1e5;
inline constexpr int64_t kRunHereBytes = int64_t{64} << 10;

// Of memory and queue, one client leaves others some room: see
// client_shares.h.
struct SchedulerOptions {
  // Behaviour.
  int64_t memory_bytes = int64_t{1} << 30;  // of the byte account
  int64_t max_queue_requests = 1024;        // waiting, not running
  double max_queue_flops = 1e15;
  double max_request_flops = 1e14;  // at most max_queue_flops
  // Performance.
  int lanes_per_device = 2;
  // With two or more lanes, the first takes only requests up to this cost.
  double small_request_flops = 1e8;
  // A request up to this cost and kRunHereBytes, of Algorithm::kAuto (others
  // may wait for compute threads), runs on the thread that submits it while a
  // lane is idle and nothing else is queued: waking the lane's own thread would
  // take longer than the request. Its `done` is called before Submit returns.
  // Scratch does not count among the bytes: it is a bound for a whole tile of
  // each compute thread, of which so cheap a request touches little.
  double run_here_flops = 0;
  int max_batch_requests = 64;
  double max_batch_flops = 1e9;  // a group stops growing at this cost
  absl::Duration max_batch_delay = absl::ZeroDuration();
  // Memory of sent results that each device keeps for the next ones. Never
  // more than the account has free.
  int64_t max_idle_output_bytes = int64_t{64} << 20;

  // INVALID_ARGUMENT naming the option and its range.
  absl::Status Validate() const;
};

struct SchedulerStats {
  int64_t queued_requests = 0;
  double queued_flops = 0;
  int64_t running_requests = 0;
  int64_t account_bytes = 0;
  int64_t account_limit_bytes = 0;
  std::vector<bool> device_in_service;  // by device
};

// Thread-safe.
class Scheduler {
 public:
  // `backends` (1 to 64) outlive the scheduler; one set of lanes each.
  // `on_device_fault` is called once per device that is taken out of service,
  // on a lane's thread, before the work that it broke completes.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(
      const SchedulerOptions& options, std::vector<Backend*> backends,
      absl::AnyInvocable<void(int device, const absl::Status&)>
          on_device_fault);
  // Drains with no time left.
  ~Scheduler();

  // Never blocks, but see run_here_flops. OK: work->done will be called exactly
  // once, maybe before this returns. Otherwise it never is, nothing of `work`
  // is kept, and release_inputs is not called:
  //   INVALID_ARGUMENT    could never fit (memory or FLOPs limit)
  //   RESOURCE_EXHAUSTED  queue or memory full now; carries RetryInfo
  //   UNIMPLEMENTED       valid, but no device has a kernel for it
  //   UNAVAILABLE         draining, or no device is in service
  //   DEADLINE_EXCEEDED, CANCELLED
  // Queued work whose deadline passes completes with DEADLINE_EXCEEDED when a
  // lane next looks for work or anyone submits; to have it sooner, cancel.
  absl::Status Submit(std::shared_ptr<Work> work);

  // Marks `work` cancelled. Queued: completes it with CANCELLED (or
  // DEADLINE_EXCEEDED past its deadline) now. Running: its kernel stops at the
  // next poll and it completes so then. Completed: nothing. Not yet submitted:
  // Submit will refuse it.
  void Cancel(const std::shared_ptr<Work>& work);

  // Refuses new work, lets what was admitted finish until `deadline`, of
  // MonotonicNow(), then cancels the rest with UNAVAILABLE. Returns when every
  // `done` has returned.
  void Drain(absl::Time deadline);

  SchedulerStats stats() const;

 private:
  class Impl;
  explicit Scheduler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_SCHEDULER_H_
