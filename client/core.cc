#include "client/core.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "client/call_ids.h"

namespace attnd::client {
namespace {

constexpr char kGetServerInfo[] = "/attn.v1.AttentionService/GetServerInfo";
constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

// How long a server counts as one without Exchange, or regions.
constexpr absl::Duration kRememberLack = absl::Minutes(1);

CallHeaders HeadersOf(const CallOptions& options, absl::Time start) {
  return {start + options.timeout, options.request_id, options.traceparent};
}

void FillStats(const CallStats& stats, absl::Duration total, Report& report) {
  report.attempts = stats.attempts;
  report.transport = stats.transport;
  report.streams = stats.streams;
  report.total = total;
}

}  // namespace

CoreClient::CoreClient(std::unique_ptr<Transport> transport,
                       std::unique_ptr<Executor> executor,
                       const ClientOptions& options)
    : options_(options),
      budget_(options.retry_budget),
      transport_(std::move(transport)),
      executor_(std::move(executor)) {}

CoreClient::~CoreClient() {
  MutexLock lock(mutex_);
  idle_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return calls_ == 0;
  });
}

CallContext CoreClient::Context(Executor& executor, bool waits) {
  {
    MutexLock lock(mutex_);
    ++calls_;
  }
  return {
      *transport_,
      executor,
      budget_,
      {options_.max_attempts, options_.initial_backoff, options_.max_backoff},
      waits};
}

void CoreClient::EndCall() {
  // Under the lock: once it is released, the client may be gone.
  MutexLock lock(mutex_);
  if (--calls_ == 0) idle_.NotifyAll();
}

absl::Status CoreClient::Run(CallSpec spec, CallStats& stats) {
  TaskQueue queue;
  bool done = false;
  absl::Status result;
  spec.done = [&](absl::Status status, const CallStats& how) {
    result = std::move(status);
    stats = how;
    done = true;
  };
  Call::Start(std::move(spec), Context(queue, /*waits=*/true));
  while (!done) queue.RunOne();
  EndCall();
  return result;
}

absl::Status CoreClient::RunSmall(
    const char* method, Pieces pieces, const CallOptions& options,
    absl::AnyInvocable<absl::Status(Fragments fragments)> decode) {
  absl::Status valid = CheckIds(options);
  if (!valid.ok()) return valid;
  CallSpec spec;
  spec.headers = HeadersOf(options, MonotonicNow());
  spec.method = method;
  spec.pieces = std::move(pieces);
  spec.decode = std::move(decode);
  CallStats stats;
  return Run(std::move(spec), stats);
}

Route CoreClient::NewRoute() {
  Route route;
  route.max_message_bytes = options_.max_message_bytes;
  route.connections = options_.connections;
  route.regions = regions_.Snapshot();
  route.learn = [this](const Lesson& lesson) { Learn(lesson); };
  MutexLock lock(mutex_);
  const absl::Time now = executor_->Now();
  route.lacks_exchange = now < lacks_exchange_until_;
  if (now < lacks_regions_until_) route.region_refusal = lacks_regions_;
  return route;
}

void CoreClient::Learn(const Lesson& lesson) {
  regions_.Refuse(lesson.unknown, lesson.refusal);
  MutexLock lock(mutex_);
  const absl::Time until = executor_->Now() + kRememberLack;
  if (lesson.lacks_exchange) lacks_exchange_until_ = until;
  if (lesson.lacks_regions) {
    lacks_regions_until_ = until;
    lacks_regions_ = lesson.refusal;
  }
}

absl::StatusOr<Report> CoreClient::RunTensors(Prepare prepare,
                                              const CallOptions& options) {
  absl::Status status = CheckIds(options);
  if (!status.ok()) return status;
  const absl::Time start = MonotonicNow();
  Report report;
  CallSpec spec;
  spec.headers = HeadersOf(options, start);
  Route route = NewRoute();
  route.open = [this, headers = spec.headers](const std::string& method,
                                              int64_t bytes) {
    return transport_->Open(method, bytes, headers);
  };
  status = prepare(route, report, spec);
  if (!status.ok()) return status;
  CallStats stats;
  status = Run(std::move(spec), stats);
  if (!status.ok()) return status;
  FillStats(stats, MonotonicNow() - start, report);
  return report;
}

std::function<void()> CoreClient::StartTensors(Prepare prepare,
                                               const CallOptions& options,
                                               Callback done) {
  const CallContext context = Context(*executor_, /*waits=*/false);
  auto report = std::make_shared<Report>();
  CallSpec spec;
  absl::Status prepared = CheckIds(options);
  if (prepared.ok()) prepared = prepare(NewRoute(), *report, spec);
  if (!prepared.ok()) {
    executor_->Post([this, prepared, done = std::move(done)]() mutable {
      std::exchange(done, nullptr)(prepared);
      EndCall();
    });
    return [] {};
  }
  const absl::Time start = executor_->Now();
  spec.headers = HeadersOf(options, start);
  spec.done = [this, report, start, done = std::move(done)](
                  absl::Status status, const CallStats& stats) mutable {
    // The callback, and what it holds, is gone before the call counts as done.
    if (status.ok()) {
      FillStats(stats, executor_->Now() - start, *report);
      std::exchange(done, nullptr)(*report);
    } else {
      std::exchange(done, nullptr)(std::move(status));
    }
    EndCall();
  };
  std::weak_ptr<Call> call = Call::Start(std::move(spec), context);
  return [call] {
    if (const std::shared_ptr<Call> alive = call.lock()) alive->Cancel();
  };
}

absl::StatusOr<Report> CoreClient::Forward(const ForwardCall& call,
                                           const CallOptions& options) {
  return RunTensors(
      [&](const Route& route, Report& report, CallSpec& spec) {
        return PrepareForward(call, options, route, report, spec);
      },
      options);
}

absl::StatusOr<Report> CoreClient::Backward(const BackwardCall& call,
                                            const CallOptions& options) {
  return RunTensors(
      [&](const Route& route, Report& report, CallSpec& spec) {
        return PrepareBackward(call, options, route, report, spec);
      },
      options);
}

std::function<void()> CoreClient::ForwardAsync(const ForwardCall& call,
                                               const CallOptions& options,
                                               Callback done) {
  return StartTensors(
      [&](const Route& route, Report& report, CallSpec& spec) {
        return PrepareForward(call, options, route, report, spec);
      },
      options, std::move(done));
}

std::function<void()> CoreClient::BackwardAsync(const BackwardCall& call,
                                                const CallOptions& options,
                                                Callback done) {
  return StartTensors(
      [&](const Route& route, Report& report, CallSpec& spec) {
        return PrepareBackward(call, options, route, report, spec);
      },
      options, std::move(done));
}

void CoreClient::AddRegion(std::shared_ptr<Region> region) {
  regions_.Add(std::move(region));
}

void CoreClient::RemoveRegion(const std::shared_ptr<Region>& region) {
  regions_.Remove(region);
}

absl::StatusOr<ServerInfo> CoreClient::GetServerInfo(
    const CallOptions& options) {
  ServerInfo info;
  const absl::Status status = RunSmall(
      kGetServerInfo, EncodeGetServerInfo(), options,
      [&](Fragments fragments) { return DecodeServerInfo(fragments, info); });
  if (!status.ok()) return status;
  return info;
}

absl::Status CoreClient::CheckHealth(const std::string& service,
                                     const CallOptions& options) {
  return RunSmall(kHealthCheck, EncodeHealthCheck(service), options,
                  DecodeHealthCheck);
}

}  // namespace attnd::client
