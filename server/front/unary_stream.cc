#include "server/front/unary_stream.h"

#include <utility>

#include "proto/wire/grpc_status.h"
#include "server/front/grpc_header.h"
#include "server/scheduling/call_refusal.h"

namespace attnd::server {

void UnaryStream::OnCall() {
  CallHeader header = HeaderOf(context(), *parts_.callers);
  ids_ = header.ids;
  call_ = std::make_shared<Call>(parts_,
                                 std::static_pointer_cast<UnaryStream>(self()),
                                 op_, std::move(header));
  call_->Start();
}

void UnaryStream::OnMessage(grpc::ByteBuffer& message) {
  received_ = wire::ReceivedBytes(message);
  call_->OnMessage(received_.fragments());
}

void UnaryStream::OnDone(bool cancelled) {
  const std::shared_ptr<Call> call = std::move(call_);
  call->OnDone(cancelled);
}

void UnaryStream::Announce() {
  MutexLock lock(answer_mutex_);
  if (!is_answered_) StartHeaders();
}

void UnaryStream::Answer(absl::Span<const wire::Piece> pieces,
                         absl::AnyInvocable<void()> release) {
  MutexLock lock(answer_mutex_);
  is_answered_ = true;
  if (ids_.asked_for()) TellIds(ids_, context());
  StartWriteAndFinish(wire::ToByteBuffer(pieces, std::move(release)));
}

void UnaryStream::Refuse(const absl::Status& status) {
  MutexLock lock(answer_mutex_);
  is_answered_ = true;
  TellIds(ids_, context());
  StartFinish(wire::ToGrpcStatus(WithRefusal(status)));
}

}  // namespace attnd::server
