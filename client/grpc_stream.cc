#include "client/grpc_stream.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "client/grpc_headers.h"
#include "proto/wire/grpc_bytes.h"
#include "proto/wire/grpc_time.h"

namespace attnd::client {

GrpcStream::GrpcStream(std::shared_ptr<Connection> connection,
                       StreamQueue& queue, std::string method,
                       CallHeaders headers, StreamEvents& events)
    : connection_(std::move(connection)),
      socket_(connection_->socket()),
      queue_(queue),
      method_(std::move(method)),
      headers_(std::move(headers)),
      events_(events),
      deadline_(headers_.deadline),
      context_(std::make_shared<grpc::ClientContext>()) {
  if (deadline_ != absl::InfiniteFuture()) {
    context_->set_deadline(wire::ToGrpcDeadline(deadline_));
  }
}

void GrpcStream::Start(const std::vector<wire::Piece>& pieces) {
  keep_alive_ = shared_from_this();
  std::shared_ptr<grpc::ClientContext> context;
  {
    MutexLock lock(mutex_);
    context = context_;
  }
  Fill(pieces);
  SayHeaders(headers_, static_cast<int64_t>(request_.Length()), *context);
  connection_->Identify(*context);
  // The metadata goes with the first message: otherwise that would have to wait
  // until the metadata, an operation of its own, has gone.
  context->set_initial_metadata_corked(true);
  call_ = connection_->stub().PrepareCall(context.get(), method_, queue_.get());
  call_->StartCall(nullptr);
  call_->Write(request_, write_.tag());
  // Until here the stream cannot end: it has yet to find nothing to read.
  call_->Read(&response_, read_.tag());
}

void GrpcStream::Write(const std::vector<wire::Piece>& pieces) {
  if (!Enter()) return;
  Fill(pieces);
  call_->Write(request_, write_.tag());
}

void GrpcStream::CloseWrites() {
  if (Enter()) call_->WritesDone(close_.tag());
}

void GrpcStream::Cancel() {
  std::shared_ptr<grpc::ClientContext> context;
  {
    MutexLock lock(mutex_);
    context = context_;
    deadline_ = std::min(deadline_, MonotonicNow());
  }
  if (context != nullptr) context->TryCancel();
}

absl::Time GrpcStream::due() const {
  MutexLock lock(mutex_);
  return deadline_;
}

void GrpcStream::OnRead(bool ok) {
  if (!ok) {
    {
      MutexLock lock(mutex_);
      open_ = false;
    }
    return Leave();
  }
  {
    const wire::ReceivedBytes bytes(response_);
    events_.OnMessage(bytes.fragments());
  }
  call_->Read(&response_, read_.tag());
}

void GrpcStream::OnWritten(bool ok) {
  request_.Clear();
  events_.OnWritten(ok);
  Leave();
}

void GrpcStream::OnClosed(bool /*ok*/) { Leave(); }

void GrpcStream::OnStatus(bool /*ok*/) {
  std::shared_ptr<grpc::ClientContext> context;
  {
    MutexLock lock(mutex_);
    context.swap(context_);
  }
  status_ = connection_->Explain(StatusOf(grpc_status_, *context));
  if (grpc_status_.error_code() == grpc::UNAVAILABLE) connection_->Retire();
  connection_.reset();
  call_.reset();
  context.reset();
  Release();
}

bool GrpcStream::Enter() {
  MutexLock lock(mutex_);
  if (!open_) return false;
  ++under_way_;
  return true;
}

void GrpcStream::Leave() {
  {
    MutexLock lock(mutex_);
    if (--under_way_ > 0) return;
  }
  call_->Finish(&grpc_status_, finish_.tag());
}

void GrpcStream::Fill(const std::vector<wire::Piece>& pieces) {
  holds_.fetch_add(1, std::memory_order_relaxed);
  request_ = wire::ToByteBuffer(pieces, [this] { Release(); });
}

// May run inside gRPC, when it drops the last slice of the last write: by then
// nothing of gRPC's is left here, and OnEnd neither blocks nor calls it.
void GrpcStream::Release() {
  if (holds_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  const std::shared_ptr<GrpcStream> self = std::move(keep_alive_);
  events_.OnEnd(std::move(status_));
}

}  // namespace attnd::client
