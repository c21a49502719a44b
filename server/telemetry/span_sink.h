#ifndef ATTND_SERVER_TELEMETRY_SPAN_SINK_H_
#define ATTND_SERVER_TELEMETRY_SPAN_SINK_H_

// Where the server's part in its clients' traces goes.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log_line.h"
#include "server/telemetry/call_record.h"

namespace attnd::server {

// Thread-safe.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  // A call that has just ended, and is in a trace that somebody records. Never
  // blocks; what finds no room is dropped.
  virtual void Add(const CallRecord& call) = 0;
  // Sends what there is, `limit` at most.
  virtual void Flush(absl::Duration limit) = 0;
};

struct OtlpOptions {
  // Of a collector that speaks OTLP over gRPC: "http://host:4317", or https.
  std::string endpoint;
  std::string instance_id;  // of this server
  // Told when spans cannot be sent.
  WriteLine log;
};

// Sends spans by OpenTelemetry's SDK, on a thread of its own. UNIMPLEMENTED:
// the build has none.
absl::StatusOr<std::unique_ptr<SpanSink>> StartOtlpSpans(
    const OtlpOptions& options);

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_SPAN_SINK_H_
