#include "client/attnload/recorder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace attnd::attnload {

double Results::bytes() const {
  double total = 0;
  for (const ShapeResults& shape : shapes) total += double(shape.bytes);
  return total;
}

double Results::flops() const {
  double total = 0;
  for (const ShapeResults& shape : shapes) total += shape.flops;
  return total;
}

double Results::PerSecond(double amount) const {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  return seconds > 0 ? amount / seconds : 0;
}

namespace {

std::string ErrorText(const absl::Status& status) {
  std::string text(status.message());
  const std::string id = client::RequestIdOf(status);
  if (!id.empty()) absl::StrAppend(&text, " (request id ", id, ")");
  return text;
}

}  // namespace

Recorder::Recorder(size_t shapes) { results_.shapes.resize(shapes); }

void Recorder::Record(const Outcome& outcome,
                      const absl::StatusOr<client::Report>& report) {
  MutexLock lock(mutex_);
  const absl::StatusCode code = report.status().code();
  ++results_.sent_by_code[code];
  if (!report.ok()) {
    results_.first_error.emplace(code, ErrorText(report.status()));
  }
  if (!outcome.measured) return;
  if (!any_measured_ || outcome.due < first_due_) first_due_ = outcome.due;
  if (!any_measured_ || outcome.end > last_end_) last_end_ = outcome.end;
  any_measured_ = true;
  if (!report.ok()) {
    ++results_.failed;
    return;
  }
  ++results_.ok;
  const absl::Duration latency = absl::FromChrono(outcome.end - outcome.due);
  results_.latency.Record(latency);
  ShapeResults& shape = results_.shapes[outcome.shape];
  shape.latency.Record(latency);
  shape.bytes += outcome.bytes;
  shape.flops += report->flops;
  results_.receive += report->receive;
  results_.queue += report->queue;
  results_.upload += report->upload;
  results_.compute += report->compute;
  results_.download += report->download;
  results_.batch_requests += report->batch_requests;
  if (report->plan.has_value()) {
    ++shape.plans[report->plan->plan];
    ++results_.planned;
    results_.predicted += report->plan->predicted;
    results_.planned_compute += report->compute;
  }
  if (report->transport == client::TransportKind::kStream) {
    ++results_.streamed;
    results_.streams += report->streams;
  }
  results_.by_region += report->transport == client::TransportKind::kRegion;
  if (!report->fallback.empty()) {
    ++results_.fallbacks;
    if (results_.fallback.empty()) results_.fallback = report->fallback;
  }
}

void Recorder::RecordSent() {
  MutexLock lock(mutex_);
  ++results_.sent;
}

void Recorder::RecordCheck(const RowVerdict& verdict) {
  MutexLock lock(mutex_);
  ++results_.answers_checked;
  if (!verdict.right()) ++results_.answers_wrong;
  results_.rows.Merge(verdict);
}

void Recorder::RecordInFlight(int64_t in_flight) {
  MutexLock lock(mutex_);
  results_.in_flight_peak = std::max(results_.in_flight_peak, in_flight);
}

Results Recorder::results() const {
  MutexLock lock(mutex_);
  Results results = results_;
  if (any_measured_) results.elapsed = absl::FromChrono(last_end_ - first_due_);
  return results;
}

}  // namespace attnd::attnload
