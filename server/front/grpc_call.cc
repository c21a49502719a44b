#include "server/front/grpc_call.h"

#include <utility>

#include "grpc/support/time.h"

namespace attnd::server {

void GrpcCall::Await(const Kind& kind, IoThreads& threads,
                     grpc::ServerCompletionQueue& queue) {
  const std::shared_ptr<GrpcCall> call = kind.make();
  call->kind_ = &kind;
  call->threads_ = &threads;
  call->queue_ = &queue;
  call->use_ = std::make_unique<IoThreads::Use>(threads);
  call->self_ = call;
  call->context_.AsyncNotifyWhenDone(&call->ended_);
  kind.request(call->context_, call->stream_, queue, &call->called_);
}

void GrpcCall::OnCalled(bool ok) {
  if (!ok) return;  // the server shuts down
  Await(*kind_, *threads_, *queue_);
  // Its end, and Finish: both are sure to come.
  under_way_.fetch_add(2, std::memory_order_relaxed);
  has_come_ = true;
  OnCall();
}

bool GrpcCall::Begin() {
  int before = under_way_.load(std::memory_order_relaxed);
  while (before > 0) {
    if (under_way_.compare_exchange_weak(before, before + 1,
                                         std::memory_order_acq_rel)) {
      return true;
    }
  }
  return false;
}

void GrpcCall::OnComplete(Handler handler, bool ok) {
  // What was done before an operation began has been done by now. gRPC sees to
  // that; whoever checks cannot look into it, and sees the number.
  under_way_.load(std::memory_order_acquire);
  (this->*handler)(ok);
  if (under_way_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  const std::shared_ptr<GrpcCall> self = std::move(self_);
  if (has_come_) OnDone(context_.IsCancelled());
}

void GrpcCall::StartRead() {
  if (Begin()) stream_.Read(&received_, &read_);
}

void GrpcCall::OnRead(bool ok) { ok ? OnMessage(received_) : OnReadEnd(); }

void GrpcCall::StartHeaders() {
  if (Begin()) stream_.SendInitialMetadata(&headers_);
}

void GrpcCall::StartWrite(grpc::ByteBuffer message, bool here) {
  sent_.Swap(&message);
  if (!Begin()) return;
  if (here || IoThreads::IsOn(*queue_)) return stream_.Write(sent_, &written_);
  to_write_.Set(queue_, gpr_inf_past(GPR_CLOCK_MONOTONIC), &turn_);
}

void GrpcCall::OnTurnToWrite(bool) {
  if (Begin()) stream_.Write(sent_, &written_);
}

void GrpcCall::OnSent(bool ok) {
  sent_.Clear();
  OnWritten(ok);
}

void GrpcCall::StartFinish(const grpc::Status& status) {
  // It counts already.
  under_way_.fetch_add(0, std::memory_order_release);
  stream_.Finish(status, &finished_);
}

void GrpcCall::StartWriteAndFinish(grpc::ByteBuffer message) {
  sent_.Swap(&message);
  under_way_.fetch_add(0, std::memory_order_release);
  stream_.WriteAndFinish(sent_, grpc::WriteOptions(), grpc::Status::OK,
                         &finished_);
}

void GrpcCall::OnEnd(bool) {
  if (context_.IsCancelled()) OnCancel();
}

void GrpcCall::Cancel() {
  if (!Begin()) return;
  context_.TryCancel();
  OnComplete(&GrpcCall::OnFinished, true);
}

}  // namespace attnd::server
