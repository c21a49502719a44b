#ifndef ATTND_SERVER_FRONT_GRPC_CALL_H_
#define ATTND_SERVER_FRONT_GRPC_CALL_H_

// gRPC's end of a call that carries messages: over gRPC's asynchronous
// interface, on the threads of io_threads.h. What is done with the messages
// is for whoever derives from it: unary_stream.h, exchange_stream.h.

#include <atomic>
#include <functional>
#include <memory>

#include "grpcpp/alarm.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/async_stream.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"
#include "server/front/io_threads.h"

namespace attnd::server {

// Lives until gRPC is done with it and nobody else keeps it.
class GrpcCall {
 public:
  using Stream =
      grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

  // Calls of one method.
  struct Kind {
    // Asks gRPC for the next that comes on the queue.
    std::function<void(grpc::ServerContext& context, Stream& stream,
                       grpc::ServerCompletionQueue& queue, Completion* done)>
        request;
    std::function<std::shared_ptr<GrpcCall>()> make;
  };

  // Serves the next call that comes on `queue`, and then those after it. `kind`
  // and `threads` outlive them.
  static void Await(const Kind& kind, IoThreads& threads,
                    grpc::ServerCompletionQueue& queue);

  virtual ~GrpcCall() = default;
  GrpcCall(const GrpcCall&) = delete;
  GrpcCall& operator=(const GrpcCall&) = delete;

 protected:
  GrpcCall() = default;

  grpc::ServerContext& context() { return context_; }
  std::shared_ptr<GrpcCall> self() { return self_; }  // before OnDone

  // Operations. None blocks, or tells of its end before it returns.
  // For OnMessage or OnReadEnd. One at a time; not once all is over.
  void StartRead();
  // Once at most, before all that is written: those go with the first of it
  // otherwise.
  void StartHeaders();
  // For OnWritten. One at a time, and before Finish. The bytes are copied to
  // the socket on the queue's thread, as whoever has results for several
  // streams would copy for one after another; or, `here`, on the caller's,
  // which takes a change of threads less.
  void StartWrite(grpc::ByteBuffer message, bool here);
  // One of them, once.
  void StartFinish(const grpc::Status& status);
  void StartWriteAndFinish(grpc::ByteBuffer message);
  // At any time: what has not left does not leave.
  void Cancel();

  // What happens, one after another, on the queue's thread. First of all:
  virtual void OnCall() = 0;
  virtual void OnMessage(grpc::ByteBuffer& message) = 0;
  virtual void OnReadEnd() = 0;
  virtual void OnWritten(bool ok) = 0;
  // The client or its deadline gave up, or the connection is lost.
  virtual void OnCancel() = 0;
  // Last of all, after an end, on any thread. `cancelled`: OnCancel's reasons.
  virtual void OnDone(bool cancelled) = 0;

 private:
  using Handler = void (GrpcCall::*)(bool ok);
  class Operation final : public Completion {
   public:
    Operation(GrpcCall& call, Handler handler)
        : call_(call), handler_(handler) {}
    void OnComplete(bool ok) override { call_.OnComplete(handler_, ok); }

   private:
    GrpcCall& call_;
    const Handler handler_;
  };

  // Another operation is under way. False: all is over, and it must not be.
  bool Begin();
  void OnComplete(Handler handler, bool ok);
  void OnCalled(bool ok);
  void OnRead(bool ok);
  void OnHeadersSent(bool) {}
  void OnTurnToWrite(bool ok);
  void OnSent(bool ok);
  void OnFinished(bool) {}
  void OnEnd(bool ok);

  const Kind* kind_ = nullptr;
  IoThreads* threads_ = nullptr;
  grpc::ServerCompletionQueue* queue_ = nullptr;
  std::unique_ptr<IoThreads::Use> use_;  // goes after the next
  grpc::ServerContext context_;
  Stream stream_{&context_};
  Operation called_{*this, &GrpcCall::OnCalled};
  Operation read_{*this, &GrpcCall::OnRead};
  Operation headers_{*this, &GrpcCall::OnHeadersSent};
  Operation turn_{*this, &GrpcCall::OnTurnToWrite};
  Operation written_{*this, &GrpcCall::OnSent};
  Operation finished_{*this, &GrpcCall::OnFinished};
  Operation ended_{*this, &GrpcCall::OnEnd};
  // Operations whose end is sure to be told of. Without any, all is over.
  std::atomic<int> under_way_{1};
  std::shared_ptr<GrpcCall> self_;  // while there are any
  bool has_come_ = false;
  grpc::ByteBuffer received_, sent_;
  grpc::Alarm to_write_;  // goes off at once, on the queue's thread
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_GRPC_CALL_H_
