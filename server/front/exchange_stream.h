#ifndef ATTND_SERVER_FRONT_EXCHANGE_STREAM_H_
#define ATTND_SERVER_FRONT_EXCHANGE_STREAM_H_

// gRPC's end of an Exchange stream: carries messages, and tells the
// ExchangeCall what happens.

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/wire/codec.h"
#include "server/front/call.h"
#include "server/front/exchange_call.h"
#include "server/front/grpc_call.h"

namespace attnd::server {

class ExchangeStream final : public GrpcCall, public MessageStream {
 public:
  explicit ExchangeStream(const ServiceParts& parts) : parts_(parts) {}

  void Read() override { StartRead(); }
  void Write(absl::Span<const wire::Piece> pieces,
             absl::AnyInvocable<void()> release, bool here) override;
  void Finish(const absl::Status& status) override;
  void Cut() override { Cancel(); }

 private:
  void OnCall() override;
  void OnMessage(grpc::ByteBuffer& message) override;
  void OnReadEnd() override { call_->OnReadEnd(); }
  void OnWritten(bool ok) override { call_->OnWritten(ok); }
  void OnCancel() override { call_->OnCancel(); }
  void OnDone(bool cancelled) override;

  const ServiceParts& parts_;
  CallIds ids_;                         // from OnCall on
  std::shared_ptr<ExchangeCall> call_;  // until OnDone: it keeps this
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_EXCHANGE_STREAM_H_
