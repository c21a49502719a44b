#ifndef ATTND_SERVER_TELEMETRY_OTLP_SPANS_H_
#define ATTND_SERVER_TELEMETRY_OTLP_SPANS_H_

#include <memory>
#include <string>

#include "opentelemetry/sdk/trace/processor.h"
#include "server/telemetry/span_sink.h"

namespace attnd::server {

// Spans of calls through `processor`, however that sends them.
std::unique_ptr<SpanSink> SpansThrough(
    std::unique_ptr<opentelemetry::sdk::trace::SpanProcessor> processor,
    const std::string& instance_id);

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_OTLP_SPANS_H_
