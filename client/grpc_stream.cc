#include "client/grpc_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/wire/grpc_bytes.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/grpc_time.h"
#include "proto/wire/metadata.h"

namespace attnd::client {

GrpcStream::GrpcStream(std::shared_ptr<Connection> connection,
                       std::string method, absl::Time deadline,
                       StreamEvents& events)
    : connection_(std::move(connection)),
      socket_(connection_->socket()),
      method_(std::move(method)),
      events_(events),
      deadline_(deadline),
      context_(std::make_shared<grpc::ClientContext>()) {
  if (deadline != absl::InfiniteFuture()) {
    context_->set_deadline(wire::ToGrpcDeadline(deadline));
  }
}

void GrpcStream::Start(const std::vector<wire::Piece>& pieces) {
  keep_alive_ = shared_from_this();
  // The stream may end, and let go of both, before this returns.
  const std::shared_ptr<Connection> connection = connection_;
  std::shared_ptr<grpc::ClientContext> context;
  {
    MutexLock lock(mutex_);
    context = context_;
  }
  Fill(pieces);
  context->AddMetadata(wire::kRequestBytesKey, absl::StrCat(request_.Length()));
  connection->stub().PrepareBidiStreamingCall(context.get(), method_,
                                              grpc::StubOptions(), this);
  users_.store(1, std::memory_order_release);
  AddHold();
  StartRead(&response_);
  StartWrite(&request_);
  StartCall();
}

void GrpcStream::Write(const std::vector<wire::Piece>& pieces) {
  if (!Enter()) return;
  Fill(pieces);
  StartWrite(&request_);
  Leave();
}

void GrpcStream::CloseWrites() {
  if (!Enter()) return;
  StartWritesDone();
  Leave();
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

void GrpcStream::OnReadDone(bool ok) {
  if (!ok) return Leave();
  {
    const wire::ReceivedBytes bytes(response_);
    events_.OnMessage(bytes.fragments());
  }
  StartRead(&response_);
}

void GrpcStream::OnWriteDone(bool ok) {
  request_.Clear();
  events_.OnWritten(ok);
}

void GrpcStream::OnDone(const grpc::Status& status) {
  status_ = wire::FromGrpcStatus(status);
  if (status.error_code() == grpc::UNAVAILABLE) connection_->Retire();
  connection_.reset();
  request_.Clear();
  response_.Clear();
  {
    std::shared_ptr<grpc::ClientContext> context;
    MutexLock lock(mutex_);
    context.swap(context_);
  }
  Release();
}

bool GrpcStream::Enter() {
  int users = users_.load(std::memory_order_acquire);
  while (users > 0) {
    if (users_.compare_exchange_weak(users, users + 1,
                                     std::memory_order_acq_rel)) {
      return true;
    }
  }
  return false;
}

void GrpcStream::Leave() {
  if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) RemoveHold();
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
