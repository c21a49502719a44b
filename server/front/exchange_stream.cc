#include "server/front/exchange_stream.h"

#include <utility>

#include "proto/wire/grpc_bytes.h"
#include "proto/wire/grpc_status.h"
#include "server/front/grpc_header.h"

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
  call_ = std::make_shared<ExchangeCall>(
      parts_, std::static_pointer_cast<ExchangeStream>(self()),
      HeaderOf(context(), *parts_.callers));
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
  StartFinish(wire::ToGrpcStatus(status));
}

}  // namespace attnd::server
