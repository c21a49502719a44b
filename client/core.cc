#include "client/core.h"

#include <utility>

namespace attnd::client {
namespace {

constexpr char kGetServerInfo[] = "/attn.v1.AttentionService/GetServerInfo";
constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

}  // namespace

struct CoreClient::TensorMethod {
  const char* path;
  absl::Status (*decode)(Fragments fragments, absl::Span<const Output> outputs,
                         Report& report);
};
const CoreClient::TensorMethod CoreClient::kForward = {
    "/attn.v1.AttentionService/Forward", DecodeForward};
const CoreClient::TensorMethod CoreClient::kBackward = {
    "/attn.v1.AttentionService/Backward", DecodeBackward};

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

absl::Status CoreClient::Run(const char* method, Pieces pieces,
                             absl::Duration timeout, Decode decode,
                             int* attempts) {
  TaskQueue queue;
  bool done = false;
  absl::Status result;
  CallSpec spec;
  spec.method = method;
  spec.pieces = std::move(pieces);
  spec.deadline = queue.Now() + timeout;
  spec.decode = std::move(decode);
  spec.done = [&](absl::Status status, int tries) {
    result = std::move(status);
    if (attempts != nullptr) *attempts = tries;
    done = true;
  };
  Call::Start(std::move(spec), Context(queue, /*waits=*/true));
  while (!done) queue.RunOne();
  EndCall();
  return result;
}

absl::StatusOr<Report> CoreClient::RunTensors(const TensorMethod& method,
                                              absl::StatusOr<Pieces> pieces,
                                              std::vector<Output> outputs,
                                              const CallOptions& options) {
  if (!pieces.ok()) return pieces.status();
  const absl::Time start = MonotonicNow();
  Report report;
  const absl::Status status = Run(
      method.path, *std::move(pieces), options.timeout,
      [&](Fragments fragments) {
        return method.decode(fragments, outputs, report);
      },
      &report.attempts);
  if (!status.ok()) return status;
  report.total = MonotonicNow() - start;
  return report;
}

std::function<void()> CoreClient::StartTensors(const TensorMethod& method,
                                               absl::StatusOr<Pieces> pieces,
                                               std::vector<Output> outputs,
                                               const CallOptions& options,
                                               Callback done) {
  const CallContext context = Context(*executor_, /*waits=*/false);
  if (!pieces.ok()) {
    executor_->Post(
        [this, status = pieces.status(), done = std::move(done)]() mutable {
          std::exchange(done, nullptr)(status);
          EndCall();
        });
    return [] {};
  }
  const absl::Time start = executor_->Now();
  auto report = std::make_shared<Report>();
  CallSpec spec;
  spec.method = method.path;
  spec.pieces = *std::move(pieces);
  spec.deadline = start + options.timeout;
  spec.decode = [decode = method.decode, report,
                 outputs = std::move(outputs)](Fragments fragments) {
    return decode(fragments, outputs, *report);
  };
  spec.done = [this, report, start, done = std::move(done)](
                  absl::Status status, int attempts) mutable {
    report->attempts = attempts;
    report->total = executor_->Now() - start;
    // The callback, and what it holds, is gone before the call counts as done.
    if (status.ok()) {
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
  return RunTensors(kForward,
                    EncodeForward(call, options, options_.max_message_bytes),
                    Outputs(call), options);
}

absl::StatusOr<Report> CoreClient::Backward(const BackwardCall& call,
                                            const CallOptions& options) {
  return RunTensors(kBackward,
                    EncodeBackward(call, options, options_.max_message_bytes),
                    Outputs(call), options);
}

std::function<void()> CoreClient::ForwardAsync(const ForwardCall& call,
                                               const CallOptions& options,
                                               Callback done) {
  return StartTensors(kForward,
                      EncodeForward(call, options, options_.max_message_bytes),
                      Outputs(call), options, std::move(done));
}

std::function<void()> CoreClient::BackwardAsync(const BackwardCall& call,
                                                const CallOptions& options,
                                                Callback done) {
  return StartTensors(kBackward,
                      EncodeBackward(call, options, options_.max_message_bytes),
                      Outputs(call), options, std::move(done));
}

absl::StatusOr<ServerInfo> CoreClient::GetServerInfo(
    const CallOptions& options) {
  ServerInfo info;
  const absl::Status status = Run(
      kGetServerInfo, EncodeGetServerInfo(), options.timeout,
      [&](Fragments fragments) { return DecodeServerInfo(fragments, info); },
      nullptr);
  if (!status.ok()) return status;
  return info;
}

absl::Status CoreClient::CheckHealth(const std::string& service,
                                     const CallOptions& options) {
  return Run(kHealthCheck, EncodeHealthCheck(service), options.timeout,
             DecodeHealthCheck, nullptr);
}

}  // namespace attnd::client
