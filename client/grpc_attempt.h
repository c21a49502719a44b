#ifndef ATTND_CLIENT_GRPC_ATTEMPT_H_
#define ATTND_CLIENT_GRPC_ATTEMPT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/connection.h"
#include "client/transport.h"
#include "client/unix_socket.h"
#include "client/watchdog.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/wire/codec.h"

namespace attnd::client {

// One attempt of a unary call over gRPC: one of Start, Run, and Open with what
// follows it. It ends when the status is known and gRPC has let go of the
// caller's memory, which can be later; then `done` runs.
class GrpcAttempt final : public Watched,
                          public std::enable_shared_from_this<GrpcAttempt> {
 public:
  GrpcAttempt(std::shared_ptr<Connection> connection, CallHeaders headers);
  ~GrpcAttempt() override;

  void Start(const std::string& method, const std::vector<wire::Piece>& pieces,
             Transport::Completion done);
  // The same, and waits for the status, polling for `busy_poll` before it
  // sleeps. This thread reads the answer from the network itself: waking it up
  // from one of gRPC's costs a fifth of the smallest call.
  void Run(const std::string& method, const std::vector<wire::Piece>& pieces,
           absl::Duration busy_poll, Transport::Completion done);

  // Run in two steps. The first sends the headers, which say that the message
  // has at most `bytes`: they wake the server up while the message is made.
  // Either of the others follows, on the same thread.
  void Open(const std::string& method, int64_t bytes);
  void RunOpened(const std::vector<wire::Piece>& pieces,
                 absl::Duration busy_poll, Transport::Completion done);
  // There will be no message; cancels the call.
  void Drop();

  void Cancel();

  absl::Time due() const override;
  // gRPC is stuck in a write; what else goes over the connection is lost.
  void Break() override { socket_->Shutdown(); }

 private:
  struct Opened;

  // These return the context, which the attempt itself keeps until OnStatus.
  std::shared_ptr<grpc::ClientContext> MakeContext(int64_t bytes);
  std::shared_ptr<grpc::ClientContext> Prepare(
      const std::vector<wire::Piece>& pieces, Transport::Completion done);
  void LookAtIdle(grpc::CompletionQueue& queue);
  void OnStatus(const grpc::Status& status);
  void Release();

  std::shared_ptr<Connection> connection_;  // until the status is known
  const std::shared_ptr<UnixSocket> socket_;
  const CallHeaders headers_;
  mutable Mutex mutex_;
  // Of the call, or when it was cancelled.
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_);
  // Until the status is known.
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  Transport::Completion done_;
  std::shared_ptr<GrpcAttempt> keep_alive_;
  std::atomic<int> holds_{2};  // the status, and the caller's memory
  grpc::ByteBuffer request_, response_;
  std::unique_ptr<Opened> opened_;
  Transport::Result result_ = absl::UnknownError("no status");
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_GRPC_ATTEMPT_H_
