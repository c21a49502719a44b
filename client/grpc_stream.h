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
#include "client/stream_queue.h"
#include "client/transport.h"
#include "client/unix_socket.h"
#include "client/watchdog.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace attnd::client {

// A stream over gRPC. Events come on its queue's thread. It lives by itself
// from Start to OnEnd, which comes when the status is known and gRPC has let go
// of the caller's memory; that can be later, and then on any thread.
class GrpcStream final : public ByteStream,
                         public Watched,
                         public std::enable_shared_from_this<GrpcStream> {
 public:
  // `queue` must live until OnEnd.
  GrpcStream(std::shared_ptr<Connection> connection, StreamQueue& queue,
             std::string method, CallHeaders headers, StreamEvents& events);

  void Start(const std::vector<wire::Piece>& pieces) override;
  void Write(const std::vector<wire::Piece>& pieces) override;
  void CloseWrites() override;
  void Cancel() override;

  absl::Time due() const override;
  // gRPC is stuck in a write; what else goes over the connection is lost.
  void Break() override { socket_->Shutdown(); }

 private:
  // What says to the stream that an operation of its call is over.
  class Operation final : public StreamQueue::Tag {
   public:
    using Done = void (GrpcStream::*)(bool ok);
    Operation(GrpcStream& stream, Done done) : stream_(stream), done_(done) {}

    void OnDone(bool ok) override { (stream_.*done_)(ok); }
    void* tag() { return static_cast<StreamQueue::Tag*>(this); }

   private:
    GrpcStream& stream_;
    const Done done_;
  };

  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnClosed(bool ok);
  void OnStatus(bool ok);

  // Whether another operation may be started; it counts as under way then.
  bool Enter();
  // An operation has been handled. The last one asks for the status.
  void Leave();
  // `pieces` in request_, with a hold until gRPC has let go of them.
  void Fill(const std::vector<wire::Piece>& pieces);
  void Release();

  std::shared_ptr<Connection> connection_;  // until the status is known
  const std::shared_ptr<UnixSocket> socket_;
  StreamQueue& queue_;
  const std::string method_;
  const CallHeaders headers_;
  StreamEvents& events_;
  Operation read_{*this, &GrpcStream::OnRead};
  Operation write_{*this, &GrpcStream::OnWritten};
  Operation close_{*this, &GrpcStream::OnClosed};
  Operation finish_{*this, &GrpcStream::OnStatus};

  mutable Mutex mutex_;
  // Of the call, or when it was cancelled.
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_);
  // Operations from when they are about to be started until they have been
  // handled: to begin with the first write, and the reads, which count as one.
  // Those end when there is nothing more to read, and then no other operation
  // is started.
  int under_way_ ABSL_GUARDED_BY(mutex_) = 2;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;  // there may be more to read
  // Until the status is known. The call's memory goes with it.
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);

  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;  // in context_
  std::shared_ptr<GrpcStream> keep_alive_;
  std::atomic<int> holds_{1};  // the status, and writes of the caller's memory
  grpc::ByteBuffer request_, response_;
  grpc::Status grpc_status_;
  absl::Status status_;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_GRPC_STREAM_H_
