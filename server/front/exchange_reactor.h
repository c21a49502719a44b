#ifndef ATTND_SERVER_FRONT_EXCHANGE_REACTOR_H_
#define ATTND_SERVER_FRONT_EXCHANGE_REACTOR_H_

// gRPC's end of an Exchange stream: carries messages, and tells the
// ExchangeCall what happens.

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "proto/wire/codec.h"
#include "server/front/call.h"
#include "server/front/exchange_call.h"

namespace attnd::server {

// Lives until gRPC is done with it and nobody keeps it as a MessageStream.
class ExchangeReactor final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public MessageStream {
 public:
  // Starts a stream, and returns what gRPC wants to have.
  static ExchangeReactor* Start(const ServiceParts& parts,
                                grpc::CallbackServerContext& context);

  explicit ExchangeReactor(grpc::CallbackServerContext& context);
  ~ExchangeReactor() override;

  void Read() override;
  void Write(absl::Span<const wire::Piece> pieces,
             absl::AnyInvocable<void()> release) override;
  void Finish(const absl::Status& status) override;
  void Cut() override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  grpc::CallbackServerContext& context_;   // until OnDone
  grpc_call* const core_call_;             // kept, so that Cut never comes late
  std::shared_ptr<ExchangeReactor> self_;  // until OnDone, as the next
  std::shared_ptr<ExchangeCall> call_;
  grpc::ByteBuffer received_, sent_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_EXCHANGE_REACTOR_H_
