#ifndef ATTND_CLIENT_ATTNLOAD_RECORDER_H_
#define ATTND_CLIENT_ATTNLOAD_RECORDER_H_

// What became of the requests of one load level.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attnd/client.h"
#include "base/mutex.h"
#include "client/attnload/histogram.h"
#include "client/attnload/row_check.h"

namespace attnd::attnload {

using Clock = std::chrono::steady_clock;

struct ShapeResults {
  Histogram latency;  // of answered requests
  int64_t bytes = 0;  // of tensors, both ways
  double flops = 0;
  // Answered requests that a team ran, by its plan.
  std::map<client::Plan, int64_t> plans;
};

struct Results {
  // From the first measured request's due time to the last one's end.
  absl::Duration elapsed;
  Histogram latency;  // of answered requests
  std::vector<ShapeResults> shapes;
  // Sums over answered requests, as the server reports them.
  absl::Duration receive, queue, upload, compute, download;
  double batch_requests = 0;
  // How the answered ones travelled: those in chunks, and the streams of these.
  int64_t streamed = 0, streams = 0;
  // Those that referred to tensors in regions, and those that could not, with
  // the first reason.
  int64_t by_region = 0, fallbacks = 0;
  std::string fallback;
  // Of those that a team ran, what the server said that compute would be, and
  // what it was.
  int64_t planned = 0;
  absl::Duration predicted, planned_compute;
  int64_t ok = 0, failed = 0;
  int64_t sent = 0;  // measured or not, and whether they have ended or not
  // Those that have ended by status code, measured or not, and the first
  // message of each error.
  std::map<absl::StatusCode, int64_t> sent_by_code;
  std::map<absl::StatusCode, std::string> first_error;
  int64_t answers_checked = 0, answers_wrong = 0;
  RowVerdict rows;
  int64_t in_flight_peak = 0;

  double bytes() const;
  double flops() const;
  double PerSecond(double amount) const;  // amount / elapsed
};

// Thread-safe.
class Recorder {
 public:
  explicit Recorder(size_t shapes);

  struct Outcome {
    size_t shape = 0;
    bool measured = false;  // false: a warm-up request
    Clock::time_point due, end;
    int64_t bytes = 0;
  };
  void Record(const Outcome& outcome,
              const absl::StatusOr<client::Report>& report);
  // A request is about to be sent; its Record will follow.
  void RecordSent();
  void RecordCheck(const RowVerdict& verdict);
  void RecordInFlight(int64_t in_flight);

  // All so far; `elapsed` up to the last end.
  Results results() const;

 private:
  mutable Mutex mutex_;
  Results results_ ABSL_GUARDED_BY(mutex_);
  bool any_measured_ ABSL_GUARDED_BY(mutex_) = false;
  Clock::time_point first_due_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point last_end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::attnload

#endif  // ATTND_CLIENT_ATTNLOAD_RECORDER_H_
