#ifndef ATTND_SERVER_TELEMETRY_REFUSAL_LOG_H_
#define ATTND_SERVER_TELEMETRY_REFUSAL_LOG_H_

// What the log says of connections that are refused.

#include <cstdint>
#include <utility>

#include "absl/time/time.h"
#include "base/log_line.h"
#include "server/net/connection_limits.h"
#include "server/net/origin.h"
#include "server/telemetry/line_limit.h"

namespace attnd::server {

// A line each, as long as they are few: those that LineLimit leaves out are
// counted by the next one. Not thread-safe.
class RefusalLog {
 public:
  // `write` gets the lines; empty: nobody does.
  explicit RefusalLog(WriteLine write) : write_(std::move(write)) {}

  // `now` is MonotonicNow().
  void Add(Refusal why, const Origin& origin, absl::Time now);

 private:
  const WriteLine write_;
  LineLimit limit_;
  int64_t left_out_ = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_REFUSAL_LOG_H_
