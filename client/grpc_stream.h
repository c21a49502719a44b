#ifndef ATTND_CLIENT_GRPC_STREAM_H_
#define ATTND_CLIENT_GRPC_STREAM_H_

#include <atomic>
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
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/status.h"

namespace attnd::client {

// A stream over gRPC's callback interface. Events come on gRPC's own threads.
// It lives by itself from Start to OnEnd, which comes when the status is known
// and gRPC has let go of the caller's memory; that can be later.
class GrpcStream final
    : public ByteStream,
      public Watched,
      private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public std::enable_shared_from_this<GrpcStream> {
 public:
  GrpcStream(std::shared_ptr<Connection> connection, std::string method,
             absl::Time deadline, StreamEvents& events);

  void Start(const std::vector<wire::Piece>& pieces) override;
  void Write(const std::vector<wire::Piece>& pieces) override;
  void CloseWrites() override;
  void Cancel() override;

  absl::Time due() const override;
  // gRPC is stuck in a write; what else goes over the connection is lost.
  void Break() override { socket_->Shutdown(); }

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  // Whether operations may still be started; until Leave, they may.
  bool Enter();
  void Leave();
  // `pieces` in request_, with a hold until gRPC has let go of them.
  void Fill(const std::vector<wire::Piece>& pieces);
  void Release();

  std::shared_ptr<Connection> connection_;  // until the status is known
  const std::shared_ptr<UnixSocket> socket_;
  const std::string method_;
  StreamEvents& events_;
  mutable Mutex mutex_;
  // Of the call, or when it was cancelled.
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_);
  // Until the status is known. The call's memory goes with it.
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<GrpcStream> keep_alive_;
  // Who may start operations: the reads, until there is nothing more to read,
  // and those who are about to write. gRPC keeps the reactor for them.
  std::atomic<int> users_{0};
  std::atomic<int> holds_{1};  // the status, and writes of the caller's memory
  grpc::ByteBuffer request_, response_;
  absl::Status status_;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_GRPC_STREAM_H_
