#ifndef ATTND_SERVER_TELEMETRY_REFUSAL_LOG_H_
#define ATTND_SERVER_TELEMETRY_REFUSAL_LOG_H_

// What the log says of connections that are refused.

#include <utility>

#include "absl/time/time.h"
#include "base/log_line.h"
#include "server/net/connection_limits.h"
#include "server/net/origin.h"
#include "server/telemetry/line_limit.h"

namespace attnd::server {

// A line each, as long as LineLimit allows. Not thread-safe.
class RefusalLog {
 public:
  RefusalLog(WriteLine write, LeaveOutLine leave_out)
      : write_(std::move(write)), leave_out_(std::move(leave_out)) {}

  // `now` is MonotonicNow().
  void Add(Refusal why, const Origin& origin, absl::Time now);

 private:
  const WriteLine write_;
  const LeaveOutLine leave_out_;
  LineLimit limit_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_REFUSAL_LOG_H_
