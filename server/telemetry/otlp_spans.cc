#include "server/telemetry/otlp_spans.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "opentelemetry/exporters/otlp/otlp_grpc_exporter_factory.h"
#include "opentelemetry/sdk/common/global_log_handler.h"
#include "opentelemetry/sdk/resource/resource.h"
#include "opentelemetry/sdk/trace/batch_span_processor_factory.h"
#include "opentelemetry/sdk/trace/id_generator.h"
#include "opentelemetry/sdk/trace/samplers/always_off_factory.h"
#include "opentelemetry/sdk/trace/samplers/parent_factory.h"
#include "opentelemetry/sdk/trace/tracer_provider.h"
#include "opentelemetry/sdk/trace/tracer_provider_factory.h"
#include "opentelemetry/trace/span_context.h"
#include "opentelemetry/trace/span_startoptions.h"
#include "opentelemetry/trace/tracer.h"
#include "server/config/version.h"

namespace attnd::server {
namespace {

namespace api = opentelemetry::trace;
namespace common = opentelemetry::common;
namespace nostd = opentelemetry::nostd;
namespace sdk = opentelemetry::sdk;

constexpr std::chrono::seconds kExportTime(5);
constexpr size_t kQueuedSpans = 2048;

// Gives the span that a thread is about to start the id that its client has
// been told.
class GivenIds final : public sdk::trace::IdGenerator {
 public:
  GivenIds() : IdGenerator(/*is_random=*/true) {}

  static void SetNext(const wire::TraceContext& span) { next_ = span; }
  api::SpanId GenerateSpanId() noexcept override {
    return api::SpanId(nostd::span<const uint8_t, 8>(next_.span_id));
  }
  api::TraceId GenerateTraceId() noexcept override {
    return api::TraceId(nostd::span<const uint8_t, 16>(next_.trace_id));
  }

 private:
  static thread_local wire::TraceContext next_;
};
thread_local wire::TraceContext GivenIds::next_;

api::SpanContext ContextOf(const wire::TraceContext& context) {
  return {api::TraceId(nostd::span<const uint8_t, 16>(context.trace_id)),
          api::SpanId(nostd::span<const uint8_t, 8>(context.span_id)),
          api::TraceFlags(context.flags), /*is_remote=*/true};
}

// A fault of the server, as OpenTelemetry has it of gRPC's codes.
bool IsServersFault(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

class OtlpSpans final : public SpanSink {
 public:
  OtlpSpans(std::unique_ptr<sdk::trace::SpanProcessor> processor,
            const std::string& instance_id)
      : provider_(sdk::trace::TracerProviderFactory::Create(
            std::move(processor),
            sdk::resource::Resource::Create(
                {{"service.name", "attnd"},
                 {"service.version", kVersion},
                 {"service.instance.id", instance_id}}),
            // Who records a trace has said so in its header; none begins here.
            sdk::trace::ParentBasedSamplerFactory::Create(
                std::shared_ptr<sdk::trace::Sampler>(
                    sdk::trace::AlwaysOffSamplerFactory::Create())),
            std::make_unique<GivenIds>())),
        tracer_(provider_->GetTracer("attnd", kVersion)) {}

  void Add(const CallRecord& call) override {
    if (!call.ids.parent().has_value() || !call.ids.parent()->sampled()) return;
    const auto total = absl::ToChronoNanoseconds(call.total);
    const auto ended = std::chrono::steady_clock::now();
    api::StartSpanOptions start;
    start.kind = api::SpanKind::kServer;
    start.parent = ContextOf(*call.ids.parent());
    start.start_system_time =
        common::SystemTimestamp(std::chrono::system_clock::now() - total);
    start.start_steady_time = common::SteadyTimestamp(ended - total);
    GivenIds::SetNext(call.ids.span());
    const auto span = tracer_->StartSpan(
        absl::StrCat("attn.v1.AttentionService/", NameOf(call.method)),
        {{"rpc.system", "grpc"},
         {"rpc.service", "attn.v1.AttentionService"},
         {"rpc.method", NameOf(call.method)},
         {"rpc.grpc.status_code", static_cast<int>(call.code)},
         {"attnd.request_id", call.ids.request_id()},
         {"attnd.client", call.client},
         {"attnd.received_bytes", call.received_bytes},
         {"attnd.sent_bytes", call.sent_bytes}},
        start);
    if (call.request != nullptr) {
      span->SetAttribute("attnd.shape", ShapeOf(*call.request));
    }
    if (call.run.has_value()) AddRun(*call.run, *span);
    if (IsServersFault(call.code)) {
      span->SetStatus(api::StatusCode::kError,
                      std::string(call.status.message()));
    }
    api::EndSpanOptions end;
    end.end_steady_time = common::SteadyTimestamp(ended);
    span->End(end);
  }

  void Flush(absl::Duration limit) override {
    provider_->ForceFlush(absl::ToChronoMicroseconds(limit));
  }

 private:
  static void AddRun(const RunRecord& run, api::Span& span) {
    const auto seconds = [&span](const char* name, absl::Duration time) {
      span.SetAttribute(name, absl::ToDoubleSeconds(time));
    };
    seconds("attnd.receive_seconds", run.phases.receive);
    seconds("attnd.queue_seconds", run.phases.queue);
    seconds("attnd.upload_seconds", run.phases.upload);
    seconds("attnd.compute_seconds", run.phases.compute);
    seconds("attnd.download_seconds", run.phases.download);
    span.SetAttribute("attnd.batch_requests", run.batch_requests);
    span.SetAttribute("attnd.flops", run.flops);
    span.SetAttribute("attnd.device", run.device);
  }

  const std::unique_ptr<sdk::trace::TracerProvider> provider_;
  const nostd::shared_ptr<api::Tracer> tracer_;
};

// What the SDK would write to stderr by itself.
class SdkLog final : public sdk::common::internal_log::LogHandler {
 public:
  explicit SdkLog(WriteLine write) : write_(std::move(write)) {}

  void Handle(sdk::common::internal_log::LogLevel, const char*, int,
              const char* message,
              const sdk::common::AttributeMap&) noexcept override {
    if (write_ && message != nullptr) {
      write_({LogLevel::kWarning, absl::StrCat("OpenTelemetry: ", message)});
    }
  }

 private:
  const WriteLine write_;
};

}  // namespace

std::unique_ptr<SpanSink> SpansThrough(
    std::unique_ptr<sdk::trace::SpanProcessor> processor,
    const std::string& instance_id) {
  return std::make_unique<OtlpSpans>(std::move(processor), instance_id);
}

absl::StatusOr<std::unique_ptr<SpanSink>> StartOtlpSpans(
    const OtlpOptions& options) {
  sdk::common::internal_log::GlobalLogHandler::SetLogHandler(
      nostd::shared_ptr<sdk::common::internal_log::LogHandler>(
          new SdkLog(options.log)));
  opentelemetry::exporter::otlp::OtlpGrpcExporterOptions otlp;
  otlp.endpoint = options.endpoint;
  otlp.use_ssl_credentials = absl::StartsWith(options.endpoint, "https://");
  otlp.timeout = kExportTime;
  sdk::trace::BatchSpanProcessorOptions batch;
  batch.max_queue_size = kQueuedSpans;
  batch.max_export_batch_size = kQueuedSpans / 4;
  batch.schedule_delay_millis = std::chrono::seconds(1);
  return SpansThrough(
      sdk::trace::BatchSpanProcessorFactory::Create(
          opentelemetry::exporter::otlp::OtlpGrpcExporterFactory::Create(otlp),
          batch),
      options.instance_id);
}

}  // namespace attnd::server
