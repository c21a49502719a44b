#include "server/front/info_call.h"

#include <memory>

namespace attnd::server {

void InfoCall::Await(const Kind& kind, IoThreads& threads,
                     grpc::ServerCompletionQueue& queue) {
  // Its last completion deletes it.
  auto* const call = new InfoCall(kind, threads, queue);
  kind.request(call->context_, &call->request_, call->responder_, queue, call);
}

InfoCall::InfoCall(const Kind& kind, IoThreads& threads,
                   grpc::ServerCompletionQueue& queue)
    : kind_(kind), threads_(threads), use_(threads), queue_(queue) {}

void InfoCall::OnComplete(bool ok) {
  if (!ok || answered_) {
    const std::unique_ptr<InfoCall> over(this);
    return;
  }
  Await(kind_, threads_, queue_);
  answered_ = true;
  attn::v1::GetServerInfoResponse response;
  const grpc::Status status = kind_.answer(context_, request_, response);
  if (status.ok()) {
    responder_.Finish(response, status, this);
  } else {
    responder_.FinishWithError(status, this);
  }
}

}  // namespace attnd::server
