#ifndef ATTND_SERVER_TELEMETRY_CALL_LOG_H_
#define ATTND_SERVER_TELEMETRY_CALL_LOG_H_

// Where calls go that have ended: into metrics, into the log, and into what an
// operator sees of late.

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/log_line.h"
#include "base/mutex.h"
#include "server/config/options.h"
#include "server/telemetry/call_record.h"
#include "server/telemetry/line_limit.h"
#include "server/telemetry/metrics.h"
#include "server/telemetry/span_sink.h"

namespace attnd::server {

// Thread-safe.
class CallLog {
 public:
  // How many calls of each kind Recent knows, and for how long those that took
  // longest count.
  static constexpr size_t kKept = 20;
  static constexpr absl::Duration kSlowestOf = absl::Minutes(10);

  // A call that has ended, and when: MonotonicNow().
  struct Ended {
    absl::Time at;
    CallRecord call;    // without its request, which may be large
    std::string shape;  // that one's; empty where there is none
  };
  struct Recent {
    std::vector<Ended> failed;   // the last ones, the last first
    std::vector<Ended> slowest;  // of kSlowestOf, the slowest first
  };

  // `metrics` and `spans`, which may be null, outlive it.
  CallLog(Metrics& metrics, CallLogOptions options, SpanSink* spans = nullptr)
      : metrics_(metrics), options_(std::move(options)), spans_(spans) {}

  void Add(CallRecord call, absl::Time now);
  Recent recent(absl::Time now) const;

 private:
  // What its line is to be; the server's own failures count for more than what
  // clients did.
  static LogLevel LevelOf(absl::StatusCode code, bool is_slow);
  void Write(const CallRecord& call, LogLevel level, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Keep(CallRecord call, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets those that ended before kSlowestOf.
  void Forget(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Metrics& metrics_;
  const CallLogOptions options_;
  SpanSink* const spans_;
  // Calls that take less, while `stale_at_` has not passed, are not among the
  // slowest. Both are looked at without the lock, which most calls never take.
  std::atomic<int64_t> least_nanoseconds_ = 0;
  std::atomic<int64_t> stale_at_ = 0;  // as absl::ToUnixNanos has it

  mutable Mutex mutex_;
  LineLimit limit_ ABSL_GUARDED_BY(mutex_);
  std::deque<Ended> failed_ ABSL_GUARDED_BY(mutex_);    // the last first
  std::vector<Ended> slowest_ ABSL_GUARDED_BY(mutex_);  // in no order
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_CALL_LOG_H_
