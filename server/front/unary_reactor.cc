#include "server/front/unary_reactor.h"

#include <utility>

#include "grpc/grpc.h"
#include "proto/wire/grpc_status.h"
#include "server/front/grpc_header.h"

namespace attnd::server {

UnaryReactor* UnaryReactor::Start(const ServiceParts& parts, Op op,
                                  grpc::CallbackServerContext& context) {
  auto reactor = std::make_shared<UnaryReactor>(context);
  reactor->self_ = reactor;
  reactor->call_ =
      std::make_shared<Call>(parts, reactor, op, HeaderOf(context));
  reactor->call_->Start();
  return reactor.get();
}

UnaryReactor::UnaryReactor(grpc::CallbackServerContext& context)
    : context_(context), core_call_(context.c_call()) {
  grpc_call_ref(core_call_);
}

UnaryReactor::~UnaryReactor() { grpc_call_unref(core_call_); }

void UnaryReactor::Read() { StartRead(&request_); }

void UnaryReactor::DropMessage() { received_.Release(); }

void UnaryReactor::Answer(absl::Span<const wire::Piece> pieces,
                          absl::AnyInvocable<void()> release) {
  response_ = wire::ToByteBuffer(pieces, std::move(release));
  StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
}

void UnaryReactor::Refuse(const absl::Status& status) {
  Finish(wire::ToGrpcStatus(status));
}

void UnaryReactor::Cut() { grpc_call_cancel(core_call_, nullptr); }

void UnaryReactor::OnReadDone(bool ok) {
  if (!ok) return call_->OnNoMessage();
  received_ = wire::ReceivedBytes(request_);
  call_->OnMessage(received_.fragments());
}

void UnaryReactor::OnCancel() { call_->OnCancel(); }

void UnaryReactor::OnDone() {
  // Whoever is the last to keep them lets go of both.
  const std::shared_ptr<UnaryReactor> self = std::move(self_);
  const std::shared_ptr<Call> call = std::move(call_);
  call->OnDone(context_.IsCancelled());
}

}  // namespace attnd::server
