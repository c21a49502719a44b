#include "server/front/call.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/grpc_time.h"
#include "server/front/decode.h"
#include "server/front/encode.h"
#include "server/front/identity.h"

namespace attnd::server {

Call::Call(const ServiceParts& parts) : parts_(parts) {
  set_request(&request_);
  set_response(&response_);
}

Call::~Call() {
  if (admitted_) parts_.admitted_calls->Remove();
}

void Call::Start(Op op, grpc::CallbackServerContext& context) {
  started_ = MonotonicNow();
  context_ = &context;
  method_ = op == Op::kForward ? Method::kForward : Method::kBackward;
  deadline_ = wire::FromGrpcDeadline(context.raw_deadline());
  received_bytes_ = static_cast<int64_t>(request_.Length());
  const absl::Status status = Submit(op);
  if (status.ok()) return;
  FreeRequest();
  End(status);
}

absl::Status Call::Submit(Op op) {
  received_ = wire::ReceivedBytes(request_);
  auto work = std::make_shared<Work>();
  absl::Status status = DecodeWork(op, received_.fragments(), *work);
  if (!status.ok()) return status;
  status = CheckResponseFits(*work->request, parts_.max_message_bytes);
  if (!status.ok()) return status;
  work->client = ClientOf(context_->peer());
  work->deadline = deadline_;
  work->release_inputs = [this] { FreeRequest(); };
  work->done = [this](absl::StatusOr<WorkResult> result) {
    Complete(std::move(result));
  };
  work_ = std::move(work);
  // Before it can be done.
  admitted_ = true;
  parts_.admitted_calls->Add();
  status = parts_.scheduler->Submit(work_);
  if (!status.ok()) {
    admitted_ = false;
    parts_.admitted_calls->Remove();
  }
  return status;
}

void Call::Complete(absl::StatusOr<WorkResult> result) {
  if (!result.ok()) return End(result.status());
  phases_ = result->phases;
  batch_requests_ = result->batch_requests;
  const auto pieces = EncodeResult(*work_->request, *result);
  if (!pieces.ok()) return End(pieces.status());
  // The pieces borrow the result's buffers, which stay until the transport
  // drops the last slice.
  response_ = wire::ToByteBuffer(*pieces, [owner = *std::move(result)] {});
  sent_bytes_ = static_cast<int64_t>(response_.Length());
  End(absl::OkStatus());
}

// The last thing that a lane or Start does with the call.
void Call::End(const absl::Status& status) {
  code_ = status.code();
  Finish(wire::ToGrpcStatus(status));
}

void Call::OnCancel() {
  if (work_ != nullptr) parts_.scheduler->Cancel(work_);
}

// Counting waits until the answer has left.
void Call::OnDone() {
  if (batch_requests_ > 0) {
    parts_.metrics->WorkDone(method_, phases_, batch_requests_,
                             work_->request->flops());
  }
  parts_.metrics->CallEnded(method_, CodeSeen(), MonotonicNow() - started_,
                            received_bytes_, sent_bytes_);
}

// The code that the client got: its own when it gave up before ours arrived.
absl::StatusCode Call::CodeSeen() const {
  if (!context_->IsCancelled()) return code_;
  if (deadline_ == absl::InfiniteFuture()) return absl::StatusCode::kCancelled;
  // A client whose deadline passes resets the stream, which looks like any
  // cancel. On the wire a timeout is rounded up by 1 % at most, and it starts
  // here when the headers arrive: ours passes that much later than its.
  const absl::Duration later =
      absl::Milliseconds(10) + (deadline_ - started_) / 50;
  return MonotonicNow() + later >= deadline_
             ? absl::StatusCode::kDeadlineExceeded
             : absl::StatusCode::kCancelled;
}

}  // namespace attnd::server
