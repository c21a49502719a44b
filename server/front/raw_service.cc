#include "server/front/raw_service.h"

#include <utility>

#include "grpcpp/impl/codegen/rpc_service_method.h"

namespace attnd::server {

void RawService::Add(const char* path,
                     std::function<std::shared_ptr<GrpcCall>()> make) {
  const int index = static_cast<int>(kinds_.size());
  // The service owns it.
  AddMethod(new grpc::internal::RpcServiceMethod(
      path, grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
  MarkMethodRaw(index);
  kinds_.push_back(
      {[this, index](grpc::ServerContext& context, GrpcCall::Stream& stream,
                     grpc::ServerCompletionQueue& queue, Completion* done) {
         RequestAsyncBidiStreaming(index, &context, &stream, &queue, &queue,
                                   done);
       },
       std::move(make)});
}

void RawService::Serve(IoThreads& threads) {
  for (const auto& queue : threads.queues()) {
    for (const GrpcCall::Kind& kind : kinds_) {
      GrpcCall::Await(kind, threads, *queue);
    }
  }
}

}  // namespace attnd::server
