#include "server/front/exchange_stream.h"

#include <utility>

#include "proto/wire/grpc_bytes.h"
#include "proto/wire/grpc_status.h"
#include "server/front/grpc_header.h"
#include "server/scheduling/call_refusal.h"

namespace attnd::server {
namespace {

class GrpcMessage final : public ReceivedMessage {
 public:
  explicit GrpcMessage(grpc::ByteBuffer& buffer) : bytes_(buffer) {}

  absl::Span<const absl::string_view> fragments() const override {
    return bytes_.fragments();
  }

 private:
  const wire::ReceivedBytes bytes_;
};

}  // namespace

void ExchangeStream::OnCall() {
  CallHeader header = HeaderOf(context(), *parts_.callers);
  ids_ = header.ids;
  call_ = std::make_shared<ExchangeCall>(
      parts_, std::static_pointer_cast<ExchangeStream>(self()),
      std::move(header));
  call_->Start();
}

void ExchangeStream::OnMessage(grpc::ByteBuffer& message) {
  call_->OnMessage(std::make_unique<GrpcMessage>(message));
}

void ExchangeStream::OnDone(bool cancelled) {
  const std::shared_ptr<ExchangeCall> call = std::move(call_);
  call->OnDone(cancelled);
}

void ExchangeStream::Write(absl::Span<const wire::Piece> pieces,
                           absl::AnyInvocable<void()> release, bool here) {
  StartWrite(wire::ToByteBuffer(pieces, std::move(release)), here);
}

void ExchangeStream::Finish(const absl::Status& status) {
  if (!status.ok() || ids_.asked_for()) TellIds(ids_, context());
  StartFinish(wire::ToGrpcStatus(WithRefusal(status)));
}

}  // namespace attnd::server
