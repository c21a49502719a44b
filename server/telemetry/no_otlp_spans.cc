// For builds without OpenTelemetry.

#include "absl/status/status.h"
#include "server/telemetry/span_sink.h"

namespace attnd::server {

absl::StatusOr<std::unique_ptr<SpanSink>> StartOtlpSpans(const OtlpOptions&) {
  return absl::UnimplementedError(
      "--otlp_endpoint: attnd was built without OpenTelemetry");
}

}  // namespace attnd::server
