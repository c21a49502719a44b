#ifndef ATTND_SERVER_FRONT_CALL_H_
#define ATTND_SERVER_FRONT_CALL_H_

// One Forward or Backward call, from its message to its status.
//
//   Start     callback thread: decode, submit
//   (lane)    release_inputs: gRPC's memory goes; done: encode, Finish
//   OnCancel  callback thread: the client or its deadline gave up
//   OnDone    callback thread: the transport is done; counted
//   Release   deletes it
//
// It is its own message holder and reactor, so that a call costs one
// allocation. The holder is what can let go of the request early: gRPC keeps
// raw requests until OnDone otherwise.

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/message_allocator.h"
#include "grpcpp/support/server_callback.h"
#include "proto/wire/grpc_bytes.h"
#include "server/front/admitted_calls.h"
#include "server/scheduling/scheduler.h"
#include "server/telemetry/metrics.h"
#include "server/work/work.h"

namespace attnd::server {

// What calls use; all of it outlives the gRPC server.
struct ServiceParts {
  Scheduler* scheduler = nullptr;
  Metrics* metrics = nullptr;
  AdmittedCalls* admitted_calls = nullptr;
  int64_t max_message_bytes = 0;  // of a response
};

class Call final
    : public grpc::MessageHolder<grpc::ByteBuffer, grpc::ByteBuffer>,
      public grpc::ServerUnaryReactor {
 public:
  explicit Call(const ServiceParts& parts);
  ~Call() override;

  void Start(Op op, grpc::CallbackServerContext& context);

  void FreeRequest() override { received_.Release(); }
  void Release() override { delete this; }
  void OnCancel() override;
  void OnDone() override;
  // OnCancel and OnDone never block, so gRPC need not wake a thread of its
  // executor for them, as it does otherwise: a fifth of the smallest call.
  bool InternalInlineable() override { return true; }

 private:
  absl::Status Submit(Op op);
  void Complete(absl::StatusOr<WorkResult> result);
  void End(const absl::Status& status);
  absl::StatusCode CodeSeen() const;

  const ServiceParts& parts_;
  grpc::ByteBuffer request_, response_;
  wire::ReceivedBytes received_;  // request_'s; work_->inputs point into it
  std::shared_ptr<Work> work_;
  bool admitted_ = false;
  grpc::CallbackServerContext* context_ = nullptr;
  Method method_ = Method::kForward;
  absl::Time started_, deadline_;
  int64_t received_bytes_ = 0, sent_bytes_ = 0;
  Phases phases_;
  int batch_requests_ = 0;  // 0: it did not run
  absl::StatusCode code_ = absl::StatusCode::kUnknown;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_CALL_H_
