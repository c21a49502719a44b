#ifndef ATTND_SERVER_FRONT_UNARY_REACTOR_H_
#define ATTND_SERVER_FRONT_UNARY_REACTOR_H_

// gRPC's end of a unary call: carries one message in and one out, and tells the
// Call what happens. To gRPC it is a stream, although the method is declared
// unary and looks so to every client: of a unary call gRPC reads the whole
// message before anybody here hears of it, of a stream only when told to.

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "proto/wire/codec.h"
#include "proto/wire/grpc_bytes.h"
#include "server/front/call.h"

namespace attnd::server {

// Lives until gRPC is done with it and nobody keeps it as a CallStream.
class UnaryReactor final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public CallStream {
 public:
  // Starts a call of `op`, and returns what gRPC wants to have.
  static UnaryReactor* Start(const ServiceParts& parts, Op op,
                             grpc::CallbackServerContext& context);

  explicit UnaryReactor(grpc::CallbackServerContext& context);
  ~UnaryReactor() override;

  void Read() override;
  void DropMessage() override;
  void Answer(absl::Span<const wire::Piece> pieces,
              absl::AnyInvocable<void()> release) override;
  void Refuse(const absl::Status& status) override;
  void Cut() override;

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  grpc::CallbackServerContext& context_;  // until OnDone
  grpc_call* const core_call_;            // kept, so that Cut never comes late
  std::shared_ptr<UnaryReactor> self_;    // until OnDone, as the next
  std::shared_ptr<Call> call_;
  grpc::ByteBuffer request_, response_;
  wire::ReceivedBytes received_;  // request_'s; the work's inputs point into it
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_UNARY_REACTOR_H_
