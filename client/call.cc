#include "client/call.h"

#include <optional>
#include <utility>

#include "absl/random/random.h"

namespace attnd::client {

std::shared_ptr<Call> Call::Start(CallSpec spec, const CallContext& context) {
  auto call = std::make_shared<Call>(std::move(spec), context);
  context.budget.AddCall();
  call->BeginAttempt();
  return call;
}

void Call::Cancel() {
  std::function<void()> cancel_attempt;
  {
    MutexLock lock(mutex_);
    if (cancelled_ || state_ == State::kDone) return;
    cancelled_ = true;
    if (state_ == State::kBackoff) {
      // The timer finds a state that is not its own, and does nothing.
      state_ = State::kAttempt;
      context_.executor.Post([self = shared_from_this()] {
        self->Finish(absl::CancelledError("cancelled by the caller"));
      });
      return;
    }
    cancel_attempt = cancel_attempt_;
  }
  if (cancel_attempt) cancel_attempt();
}

void Call::BeginAttempt() {
  if (context_.executor.Now() >= spec_.headers.deadline) {
    context_.executor.Post([self = shared_from_this()] {
      self->Finish(absl::DeadlineExceededError(
          "the deadline passed before the request was sent"));
    });
    return;
  }
  int attempt = 0;
  {
    MutexLock lock(mutex_);
    attempt = ++begun_;
  }
  const std::function<void()> cancel =
      spec_.exchange != nullptr ? BeginTransfer() : BeginUnary();
  if (!cancel) return;
  bool cancelled = false;
  {
    // The attempt may have ended, and another begun, before it was here.
    MutexLock lock(mutex_);
    if (state_ == State::kAttempt && begun_ == attempt) {
      cancel_attempt_ = cancel;
    }
    cancelled = cancelled_;
  }
  if (cancelled) cancel();
}

std::function<void()> Call::BeginUnary() {
  // The transport may hold locks of its own: take the outcome elsewhere.
  auto done = [self = shared_from_this()](Transport::Result result) mutable {
    Executor& executor = self->context_.executor;
    executor.Post(
        [self = std::move(self), result = std::move(result)]() mutable {
          self->FinishAttempt(std::move(result));
        });
  };
  if (!context_.waits) {
    return context_.transport.Start(spec_.method, spec_.pieces, spec_.headers,
                                    std::move(done));
  }
  if (spec_.opened != nullptr) {
    std::exchange(spec_.opened, nullptr)->Run(spec_.pieces, std::move(done));
    return nullptr;
  }
  context_.transport.Run(spec_.method, spec_.pieces, spec_.headers,
                         std::move(done));
  return nullptr;
}

std::function<void()> Call::BeginTransfer() {
  const std::weak_ptr<Transfer> transfer = Transfer::Start(
      *spec_.exchange, context_.transport, context_.executor, spec_.headers,
      [self = shared_from_this()](const TransferResult& result) {
        self->FinishTransfer(result);
      });
  return [transfer] {
    if (const std::shared_ptr<Transfer> alive = transfer.lock()) {
      alive->Cancel();
    }
  };
}

void Call::FinishAttempt(Transport::Result result) {
  if (!result.ok()) {
    if (MayFallBack(result.status())) return FallBack(result.status());
    return FailAttempt(result.status());
  }
  Learn();
  const absl::Status status = spec_.decode((*result)->fragments());
  result->reset();
  Finish(status);
}

void Call::FinishTransfer(const TransferResult& result) {
  {
    MutexLock lock(mutex_);
    streams_ = result.streams;
  }
  if (result.status.ok()) {
    Learn();
    return Finish(result.status);
  }
  if (!result.admitted && MayFallBack(result.status)) {
    return FallBack(result.status);
  }
  FailAttempt(result.status);
}

bool Call::MayFallBack(const absl::Status& status) const {
  return spec_.fall_back != nullptr &&
         (absl::IsUnimplemented(status) || absl::IsNotFound(status));
}

void Call::FallBack(const absl::Status& refusal) {
  const absl::Status status = spec_.fall_back(refusal, spec_);
  bool cancelled = false;
  {
    MutexLock lock(mutex_);
    cancel_attempt_ = nullptr;
    cancelled = cancelled_;
    if (status.ok()) {
      ++refused_;
      streams_ = 1;
    }
  }
  if (cancelled) return Finish(absl::CancelledError("cancelled by the caller"));
  if (!status.ok()) return Finish(status);
  BeginAttempt();
}

void Call::Learn() {
  // What refused something understands the call: it lacks that alone.
  if (spec_.learn) spec_.learn();
}

void Call::FailAttempt(const absl::Status& status) {
  {
    MutexLock lock(mutex_);
    cancel_attempt_ = nullptr;
    if (!cancelled_) {
      const std::optional<absl::Duration> delay =
          RetryDelay(context_.retry, status, begun_ - refused_,
                     spec_.headers.deadline - context_.executor.Now(),
                     absl::Uniform<double>(absl::BitGen(), 0.0, 1.0));
      if (delay.has_value() && context_.budget.TakeRetry()) {
        state_ = State::kBackoff;
        context_.executor.PostAfter(
            *delay, [self = shared_from_this()] { self->EndBackoff(); });
        return;
      }
    }
  }
  Finish(status);
}

void Call::EndBackoff() {
  {
    MutexLock lock(mutex_);
    if (state_ != State::kBackoff) return;
    state_ = State::kAttempt;
  }
  BeginAttempt();
}

void Call::Finish(const absl::Status& status) {
  CallStats stats;
  if (spec_.exchange != nullptr) {
    stats.transport = TransportKind::kStream;
  } else if (spec_.by_reference) {
    stats.transport = TransportKind::kRegion;
  }
  {
    MutexLock lock(mutex_);
    state_ = State::kDone;
    stats.attempts = begun_ - refused_;
    stats.streams = streams_;
    cancel_attempt_ = nullptr;
  }
  // Nothing of the caller's stays behind in a call that someone still holds.
  CallSpec spec = std::move(spec_);
  auto done = std::move(spec.done);
  spec = CallSpec();
  done(status, stats);
}

}  // namespace attnd::client
