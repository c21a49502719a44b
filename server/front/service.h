#ifndef ATTND_SERVER_FRONT_SERVICE_H_
#define ATTND_SERVER_FRONT_SERVICE_H_

// attn.v1.AttentionService over gRPC. Forward, Backward and Exchange take raw
// ByteBuffers, so that tensor bytes never pass through protobuf, and read them
// when there is room (unary_stream.h, exchange_stream.h).

#include "attn/v1/attention.grpc.pb.h"
#include "server/front/call.h"
#include "server/front/grpc_call.h"
#include "server/front/info_call.h"
#include "server/front/io_threads.h"

namespace attnd::server {

class Service final : public attn::v1::AttentionService::Service {
 public:
  // `info` is what GetServerInfo answers, apart from what changes.
  Service(ServiceParts parts, attn::v1::GetServerInfoResponse info);

  // Serves calls on `threads`, from when the server has been built until it
  // shuts down.
  void Serve(IoThreads& threads);

 private:
  // Calls of the method at `index` of the service.
  GrpcCall::Kind Calls(int index,
                       std::function<std::shared_ptr<GrpcCall>()> make);
  grpc::Status Answer(const grpc::ServerContext& context,
                      const attn::v1::GetServerInfoRequest& request,
                      attn::v1::GetServerInfoResponse& response);

  const ServiceParts parts_;
  const attn::v1::GetServerInfoResponse info_;
  GrpcCall::Kind forward_, backward_, exchange_;
  InfoCall::Kind get_info_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_SERVICE_H_
