#ifndef ATTND_SERVER_SCHEDULING_OPTIONS_H_
#define ATTND_SERVER_SCHEDULING_OPTIONS_H_

// What the scheduler is told at its start.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

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
  // With two or more lanes, the first takes only requests up to this cost and
  // so many bytes to move in and out: few FLOPs may still take long to copy.
  double small_request_flops = 1e8;
  int64_t small_request_bytes = int64_t{1} << 20;
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
  // A request above max_batch_flops and small_request_flops, which runs alone,
  // runs for so long before it is paused for others that wait for its lane.
  absl::Duration slice_time = absl::Milliseconds(50);
  // Memory of sent results, and of inputs that arrived in chunks, that each
  // device keeps for the next ones. Never more than the account has free.
  int64_t max_idle_output_bytes = int64_t{256} << 20;

  // INVALID_ARGUMENT naming the option, as its flag is spelled if it has one,
  // and its range.
  absl::Status Validate() const;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_OPTIONS_H_
