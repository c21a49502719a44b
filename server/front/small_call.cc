#include "server/front/small_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "grpcpp/support/slice.h"
#include "proto/wire/grpc_bytes.h"
#include "proto/wire/grpc_status.h"
#include "server/front/grpc_header.h"
#include "server/identity/peer.h"

namespace attnd::server {
namespace {

grpc::ByteBuffer ToMessage(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

}  // namespace

void SmallCall::OnCall() {
  weak_ = std::static_pointer_cast<SmallCall>(self());
  caller_ = {ClientOf(context().peer()), IdsOf(context())};
  absl::StatusOr<StreamLimits::Place> place = limits_.Enter(caller_.client);
  if (!place.ok()) return End(place.status());
  place_.emplace(*std::move(place));
  Read();
}

void SmallCall::Read() {
  MutexLock lock(mutex_);
  if (phase_ != Phase::kIdle) return;
  Enter(Phase::kReading);
  StartRead();
}

void SmallCall::Send(const std::string& message) {
  MutexLock lock(mutex_);
  if (phase_ != Phase::kIdle) return;
  Enter(Phase::kSending);
  StartWrite(ToMessage(message), /*here=*/false);
}

void SmallCall::SendLast(const std::string& message) {
  MutexLock lock(mutex_);
  if (phase_ != Phase::kIdle) return;
  Enter(Phase::kEnding);
  if (caller_.ids.asked_for()) TellIds(caller_.ids, context());
  StartWriteAndFinish(ToMessage(message));
}

void SmallCall::End(const absl::Status& status) {
  MutexLock lock(mutex_);
  if (phase_ == Phase::kEnding || phase_ == Phase::kOver) return;
  if (phase_ != Phase::kSending) return EndNow(status);
  if (!end_.has_value()) end_ = status;
}

void SmallCall::EndNow(const absl::Status& status) {
  Enter(Phase::kEnding);
  TellIds(caller_.ids, context());
  StartFinish(wire::ToGrpcStatus(status));
}

void SmallCall::OnMessage(grpc::ByteBuffer& message) {
  if (!Leave(Phase::kReading)) return;
  if (message.Length() > kMostBytes) {
    return End(absl::ResourceExhaustedError(
        absl::StrCat("a request may have ", kMostBytes, " bytes")));
  }
  wire::ReceivedBytes received(message);
  std::string bytes;
  for (const absl::string_view fragment : received.fragments()) {
    absl::StrAppend(&bytes, fragment);
  }
  received.Release();
  OnRequest(bytes);
}

void SmallCall::OnReadEnd() {
  if (Leave(Phase::kReading)) OnRequestEnd();
}

void SmallCall::OnWritten(bool ok) {
  // Where it did not leave, the call has been lost, which OnCancel says.
  if (Leave(Phase::kSending) && ok) OnTaken();
}

bool SmallCall::Leave(Phase phase) {
  MutexLock lock(mutex_);
  if (phase_ != phase) return false;
  if (end_.has_value()) {
    EndNow(*end_);
    return false;
  }
  Enter(Phase::kIdle);
  return true;
}

void SmallCall::Enter(Phase phase) {
  if (phase_ == Phase::kReading) parts_.reads->End(*this);
  parts_.alarms->Cancel(std::exchange(alarm_, {}));
  phase_ = phase;
  if (phase == Phase::kIdle || phase == Phase::kOver) return;
  until_ = MonotonicNow() + parts_.stall_time;
  alarm_ = parts_.alarms->Set(until_, [weak = weak_] {
    const auto call = weak.lock();
    // Its peer takes nothing, so that a status would not reach it either.
    // Without the lock, as this may be the last that happens.
    if (call != nullptr && !call->EndIfLate()) call->Cancel();
  });
  if (phase == Phase::kReading) parts_.reads->Begin(weak_.lock());
}

bool SmallCall::EndIfLate() {
  MutexLock lock(mutex_);
  if (phase_ == Phase::kIdle || phase_ == Phase::kOver) return true;
  // An alarm that was cancelled may ring all the same.
  if (MonotonicNow() < until_) return true;
  if (phase_ != Phase::kReading) return false;
  EndNow(absl::DeadlineExceededError(absl::StrCat(
      "no request came for ", absl::FormatDuration(parts_.stall_time))));
  return true;
}

void SmallCall::OnExcess() {
  MutexLock lock(mutex_);
  if (phase_ != Phase::kReading) return;
  EndNow(absl::ResourceExhaustedError("there is no memory for a request now"));
}

void SmallCall::OnDone(bool) {
  {
    MutexLock lock(mutex_);
    Enter(Phase::kOver);
  }
  OnOver();
  place_.reset();
}

void SmallUnaryCall::OnRequest(const std::string& bytes) {
  if (admit_) {
    const absl::Status admitted = admit_(context(), caller());
    if (!admitted.ok()) return End(admitted);
  }
  const absl::StatusOr<std::string> answer = answer_(caller(), bytes);
  answer.ok() ? SendLast(*answer) : End(answer.status());
}

void SmallUnaryCall::OnRequestEnd() {
  End(absl::InvalidArgumentError("there is no request"));
}

}  // namespace attnd::server
