#ifndef ATTND_SERVER_FRONT_UNARY_STREAM_H_
#define ATTND_SERVER_FRONT_UNARY_STREAM_H_

// gRPC's end of a unary call: carries one message in and one out, and tells the
// Call what happens. To gRPC it is a stream, although the method is declared
// unary and looks so to every client: of a unary call gRPC reads the whole
// message before anybody here hears of it, of a stream only when told to.

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/wire/codec.h"
#include "proto/wire/grpc_bytes.h"
#include "server/front/call.h"
#include "server/front/grpc_call.h"

namespace attnd::server {

class UnaryStream final : public GrpcCall, public CallStream {
 public:
  UnaryStream(const ServiceParts& parts, Op op) : parts_(parts), op_(op) {}

  void Read() override { StartRead(); }
  void DropMessage() override { received_.Release(); }
  void Announce() override;
  void Answer(absl::Span<const wire::Piece> pieces,
              absl::AnyInvocable<void()> release) override;
  void Refuse(const absl::Status& status) override;
  void Cut() override { Cancel(); }

 private:
  void OnCall() override;
  void OnMessage(grpc::ByteBuffer& message) override;
  void OnReadEnd() override { call_->OnNoMessage(); }
  void OnWritten(bool) override {}
  void OnCancel() override { call_->OnCancel(); }
  void OnDone(bool cancelled) override;

  const ServiceParts& parts_;
  const Op op_;
  CallIds ids_;                   // from OnCall on
  std::shared_ptr<Call> call_;    // until OnDone: it keeps this
  wire::ReceivedBytes received_;  // the work's inputs point into it
  Mutex answer_mutex_;
  // Headers that go with the answer do not go ahead of it.
  bool is_answered_ ABSL_GUARDED_BY(answer_mutex_) = false;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_UNARY_STREAM_H_
