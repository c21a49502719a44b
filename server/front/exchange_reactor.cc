#include "server/front/exchange_reactor.h"

#include <utility>

#include "grpc/grpc.h"
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

ExchangeReactor* ExchangeReactor::Start(const ServiceParts& parts,
                                        grpc::CallbackServerContext& context) {
  auto reactor = std::make_shared<ExchangeReactor>(context);
  reactor->self_ = reactor;
  reactor->call_ =
      std::make_shared<ExchangeCall>(parts, reactor, HeaderOf(context));
  reactor->call_->Start();
  return reactor.get();
}

ExchangeReactor::ExchangeReactor(grpc::CallbackServerContext& context)
    : context_(context), core_call_(context.c_call()) {
  grpc_call_ref(core_call_);
}

ExchangeReactor::~ExchangeReactor() { grpc_call_unref(core_call_); }

void ExchangeReactor::Read() { StartRead(&received_); }

void ExchangeReactor::Write(absl::Span<const wire::Piece> pieces,
                            absl::AnyInvocable<void()> release) {
  sent_ = wire::ToByteBuffer(pieces, std::move(release));
  StartWrite(&sent_);
}

void ExchangeReactor::Finish(const absl::Status& status) {
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>::Finish(
      wire::ToGrpcStatus(status));
}

void ExchangeReactor::Cut() { grpc_call_cancel(core_call_, nullptr); }

void ExchangeReactor::OnReadDone(bool ok) {
  if (!ok) return call_->OnReadEnd();
  call_->OnMessage(std::make_unique<GrpcMessage>(received_));
}

void ExchangeReactor::OnWriteDone(bool ok) {
  sent_.Clear();
  call_->OnWritten(ok);
}

void ExchangeReactor::OnCancel() { call_->OnCancel(); }

void ExchangeReactor::OnDone() {
  // Whoever is the last to keep them lets go of both.
  const std::shared_ptr<ExchangeReactor> self = std::move(self_);
  const std::shared_ptr<ExchangeCall> call = std::move(call_);
  call->OnDone(context_.IsCancelled());
}

}  // namespace attnd::server
