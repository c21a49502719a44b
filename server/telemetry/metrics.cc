#include "server/telemetry/metrics.h"

#include <utility>

#include "server/telemetry/process_families.h"
#include "server/telemetry/server_families.h"

namespace attnd::server {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildHistogram;
using prometheus::Histogram;

constexpr const char* kPhaseNames[] = {"queue", "upload", "compute",
                                       "download"};
// 10 us to 50 s, three a decade.
Histogram::BucketBoundaries Seconds() {
  constexpr double kDecades[] = {1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10};
  Histogram::BucketBoundaries bounds;
  for (const double decade : kDecades) {
    bounds.insert(bounds.end(), {decade, 2 * decade, 5 * decade});
  }
  return bounds;
}

Histogram::BucketBoundaries Sizes() {
  return {1, 2, 4, 8, 16, 32, 64, 128, 256};
}

}  // namespace

Metrics::Metrics(ServerFacts facts, std::function<ServerStats()> stats)
    : facts_(std::move(facts)), stats_(std::move(stats)) {
  auto& calls =
      BuildCounter()
          .Name("attnd_requests_total")
          .Help(
              "Calls that ended, by method and the code that the client got, "
              "its own where it gave up")
          .Register(registry_);
  auto& duration = BuildHistogram()
                       .Name("attnd_request_duration_seconds")
                       .Help("From a call's headers to its end")
                       .Register(registry_);
  auto& phases = BuildHistogram()
                     .Name("attnd_phase_duration_seconds")
                     .Help("Time of requests that ran, by phase")
                     .Register(registry_);
  auto& received = BuildCounter()
                       .Name("attnd_received_bytes_total")
                       .Help("Bytes of request messages")
                       .Register(registry_);
  auto& sent = BuildCounter()
                   .Name("attnd_sent_bytes_total")
                   .Help("Bytes of response messages")
                   .Register(registry_);
  auto& flops = BuildCounter()
                    .Name("attnd_floating_point_operations_total")
                    .Help("Floating-point operations of requests that ran")
                    .Register(registry_);
  batch_requests_ = &BuildHistogram()
                         .Name("attnd_batch_requests")
                         .Help("Requests in the group that a request ran in")
                         .Register(registry_)
                         .Add({}, Sizes());
  slow_calls_ = &BuildCounter()
                     .Name("attnd_slow_calls_total")
                     .Help("Calls that took longer than --slow_time")
                     .Register(registry_)
                     .Add({});
  for (int i = 0; i < kMethods; ++i) {
    const prometheus::Labels method = {
        {"method", NameOf(static_cast<Method>(i))}};
    PerMethod& m = methods_[i];
    for (int code = 0; code < kCodes; ++code) {
      prometheus::Labels labels = method;
      labels["code"] =
          code == 0
              ? "OK"
              : absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
      m.calls[code] = &calls.Add(labels);
    }
    m.duration = &duration.Add(method, Seconds());
    m.received = &received.Add(method);
    m.sent = &sent.Add(method);
    const bool computes = static_cast<Method>(i) == Method::kForward ||
                          static_cast<Method>(i) == Method::kBackward;
    if (!computes) continue;
    m.flops = &flops.Add(method);
    for (int phase = 0; phase < kPhases; ++phase) {
      prometheus::Labels labels = method;
      labels["phase"] = kPhaseNames[phase];
      m.phases[phase] = &phases.Add(labels, Seconds());
    }
  }
}

void Metrics::CallEnded(const CallRecord& call, bool is_slow) {
  PerMethod& m = methods_[static_cast<int>(call.method)];
  const int index = static_cast<int>(call.code);
  m.calls[index >= 0 && index < kCodes
              ? index
              : static_cast<int>(absl::StatusCode::kUnknown)]
      ->Increment();
  m.duration->Observe(absl::ToDoubleSeconds(call.total));
  m.received->Increment(static_cast<double>(call.received_bytes));
  m.sent->Increment(static_cast<double>(call.sent_bytes));
  if (is_slow) slow_calls_->Increment();
  if (call.run.has_value()) CountRun(*call.run);
  if (const auto why = RefusalOf(call.status); why.has_value()) {
    ++refused_[static_cast<size_t>(*why)];
  }
}

void Metrics::CountRun(const RunRecord& run) {
  const Method method =
      run.op == Op::kForward ? Method::kForward : Method::kBackward;
  PerMethod& m = methods_[static_cast<int>(method)];
  const absl::Duration times[kPhases] = {run.phases.queue, run.phases.upload,
                                         run.phases.compute,
                                         run.phases.download};
  for (int i = 0; i < kPhases; ++i) {
    m.phases[i]->Observe(absl::ToDoubleSeconds(times[i]));
  }
  m.flops->Increment(run.flops);
  batch_requests_->Observe(run.batch_requests);
}

std::array<int64_t, kCallRefusals> Metrics::RefusedCalls(
    const CallerStats& callers) const {
  std::array<int64_t, kCallRefusals> refused;
  for (int i = 0; i < kCallRefusals; ++i) refused[i] = refused_[i];
  // What is not in these calls' status.
  refused[static_cast<size_t>(CallRefusal::kNoIdentity)] = callers.no_identity;
  refused[static_cast<size_t>(CallRefusal::kToken)] = callers.token;
  return refused;
}

std::vector<prometheus::MetricFamily> Metrics::Collect() const {
  const ServerStats stats = stats_();
  Families families;
  AddServerFamilies(facts_, stats, families);
  AddProcessFamilies(families);
  families.Begin("attnd_refused_calls_total",
                 "Calls that the server did not take, by why",
                 prometheus::MetricType::Counter);
  const auto refused = RefusedCalls(stats.callers);
  for (int i = 0; i < kCallRefusals; ++i) {
    families.Add({{"reason", NameOf(static_cast<CallRefusal>(i))}},
                 static_cast<double>(refused[i]));
  }
  std::vector<prometheus::MetricFamily> all = registry_.Collect();
  for (prometheus::MetricFamily& family : families.Take()) {
    all.push_back(std::move(family));
  }
  return all;
}

}  // namespace attnd::server
