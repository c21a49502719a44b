#include "server/telemetry/call_log.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/telemetry/log_form.h"

namespace attnd::server {
namespace {

constexpr const char* kPhases[] = {"receive_ms", "queue_ms", "upload_ms",
                                   "compute_ms", "download_ms"};

double Milliseconds(absl::Duration time) {
  return absl::ToDoubleMilliseconds(time);
}

LogLine LineOf(const CallRecord& call, LogLevel level) {
  LogLine line;
  line.level = level;
  line.message =
      absl::StrCat(NameOf(call.method),
                   call.code == absl::StatusCode::kOk ? ": " : " ended: ",
                   absl::StatusCodeToString(call.code));
  // What the client was told, if it was still there to hear of it.
  if (!call.status.ok() && call.code == call.status.code()) {
    absl::StrAppend(&line.message, ": ", call.status.message());
  }
  auto& fields = line.fields;
  fields.push_back({"request_id", call.ids.request_id()});
  if (call.ids.parent().has_value()) {
    const wire::TraceContext span = call.ids.span();
    fields.push_back({"trace_id", wire::TraceIdOf(span)});
    fields.push_back({"span_id", wire::SpanIdOf(span)});
  }
  fields.push_back({"code", absl::StatusCodeToString(call.code)});
  if (!call.client.empty()) fields.push_back({"client", call.client});
  if (call.request != nullptr) {
    fields.push_back({"shape", ShapeOf(*call.request)});
  }
  fields.push_back({"duration_ms", Milliseconds(call.total)});
  if (call.run.has_value()) {
    const Phases& p = call.run->phases;
    const absl::Duration times[] = {p.receive, p.queue, p.upload, p.compute,
                                    p.download};
    for (size_t i = 0; i < std::size(times); ++i) {
      fields.push_back({kPhases[i], Milliseconds(times[i])});
    }
    fields.push_back({"batch_requests", int64_t{call.run->batch_requests}});
    fields.push_back({"device", call.run->device});
  }
  fields.push_back({"received_bytes", call.received_bytes});
  fields.push_back({"sent_bytes", call.sent_bytes});
  return line;
}

bool IsSlower(const CallLog::Ended& a, const CallLog::Ended& b) {
  return a.call.total > b.call.total;
}

}  // namespace

void CallLog::Add(CallRecord call, absl::Time now) {
  const bool is_slow = options_.slow_time > absl::ZeroDuration() &&
                       call.total > options_.slow_time;
  metrics_.CallEnded(call, is_slow);
  if (spans_ != nullptr) spans_->Add(call);
  const LogLevel level = LevelOf(call.code, is_slow);
  if (options_.write && level >= options_.level) Write(call, level, now);
  const bool is_among_slowest =
      absl::ToInt64Nanoseconds(call.total) > least_nanoseconds_ ||
      absl::ToUnixNanos(now) >= stale_at_;
  if (is_among_slowest || call.code != absl::StatusCode::kOk) {
    Keep(std::move(call), now);
  }
}

LogLevel CallLog::LevelOf(absl::StatusCode code, bool is_slow) {
  switch (code) {
    case absl::StatusCode::kOk:
      return is_slow ? LogLevel::kInfo : LogLevel::kDebug;
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return LogLevel::kWarning;
    default:
      return LogLevel::kInfo;
  }
}

void CallLog::Write(const CallRecord& call, LogLevel level, absl::Time now) {
  const LogLine line = LineOf(call, level);
  if (level > LogLevel::kDebug) {
    // One place a code, so that a client that floods with one kind of error
    // leaves room for the others.
    MutexLock lock(mutex_);
    if (!limit_.Allows({__FILE__, static_cast<int>(call.code)}, LineBytes(line),
                       now)) {
      if (options_.leave_out) options_.leave_out();
      return;
    }
  }
  options_.write(line);
}

void CallLog::Keep(CallRecord call, absl::Time now) {
  Ended ended{now, std::move(call), ""};
  if (ended.call.request != nullptr) {
    ended.shape = ShapeOf(*ended.call.request);
    ended.call.request.reset();
  }
  // What goes after the lock.
  std::vector<Ended> gone;
  MutexLock lock(mutex_);
  if (ended.call.code != absl::StatusCode::kOk) {
    failed_.push_front(std::move(ended));
    if (failed_.size() > kKept) {
      gone.push_back(std::move(failed_.back()));
      failed_.pop_back();
    }
    return;
  }
  Forget(now);
  slowest_.push_back(std::move(ended));
  if (slowest_.size() > kKept) {
    const auto quickest =
        std::max_element(slowest_.begin(), slowest_.end(), IsSlower);
    gone.push_back(std::move(*quickest));
    slowest_.erase(quickest);
  }
  if (slowest_.size() < kKept) return;
  const auto& quickest =
      *std::max_element(slowest_.begin(), slowest_.end(), IsSlower);
  const auto& oldest =
      *std::min_element(slowest_.begin(), slowest_.end(),
                        [](auto& a, auto& b) { return a.at < b.at; });
  least_nanoseconds_ = absl::ToInt64Nanoseconds(quickest.call.total);
  stale_at_ = absl::ToUnixNanos(oldest.at + kSlowestOf);
}

void CallLog::Forget(absl::Time now) {
  const auto is_old = [now](const Ended& ended) {
    return ended.at + kSlowestOf <= now;
  };
  slowest_.erase(std::remove_if(slowest_.begin(), slowest_.end(), is_old),
                 slowest_.end());
}

CallLog::Recent CallLog::recent(absl::Time now) const {
  Recent recent;
  {
    MutexLock lock(mutex_);
    recent.failed.assign(failed_.begin(), failed_.end());
    for (const Ended& ended : slowest_) {
      if (ended.at + kSlowestOf > now) recent.slowest.push_back(ended);
    }
  }
  std::sort(recent.slowest.begin(), recent.slowest.end(), IsSlower);
  return recent;
}

}  // namespace attnd::server
