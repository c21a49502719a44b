#ifndef ATTND_SERVER_FRONT_INFO_CALL_H_
#define ATTND_SERVER_FRONT_INFO_CALL_H_

// A call of GetServerInfo.

#include <functional>

#include "attn/v1/attention.grpc.pb.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/async_unary_call.h"
#include "grpcpp/support/status.h"
#include "server/front/io_threads.h"

namespace attnd::server {

class InfoCall final : private Completion {
 public:
  using Responder =
      grpc::ServerAsyncResponseWriter<attn::v1::GetServerInfoResponse>;

  struct Kind {
    // Asks gRPC for the next that comes on the queue.
    std::function<void(grpc::ServerContext& context,
                       attn::v1::GetServerInfoRequest* request,
                       Responder& responder, grpc::ServerCompletionQueue& queue,
                       Completion* done)>
        request;
    std::function<grpc::Status(const grpc::ServerContext& context,
                               const attn::v1::GetServerInfoRequest& request,
                               attn::v1::GetServerInfoResponse& response)>
        answer;
  };

  // Serves the next call that comes on `queue`, and then those after it. `kind`
  // and `threads` outlive them.
  static void Await(const Kind& kind, IoThreads& threads,
                    grpc::ServerCompletionQueue& queue);

 private:
  InfoCall(const Kind& kind, IoThreads& threads,
           grpc::ServerCompletionQueue& queue);
  void OnComplete(bool ok) override;

  const Kind& kind_;
  IoThreads& threads_;
  const IoThreads::Use use_;
  grpc::ServerCompletionQueue& queue_;
  grpc::ServerContext context_;
  Responder responder_{&context_};
  attn::v1::GetServerInfoRequest request_;
  bool answered_ = false;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_INFO_CALL_H_
