#ifndef ATTND_SERVER_FRONT_SERVICE_H_
#define ATTND_SERVER_FRONT_SERVICE_H_

// attn.v1.AttentionService over gRPC's callback API. Forward and Backward take
// raw ByteBuffers, so that tensor bytes never pass through protobuf, and read
// them when there is room (unary_reactor.h), and so does Exchange
// (exchange_reactor.h).

#include "attn/v1/attention.grpc.pb.h"
#include "server/front/call.h"

namespace attnd::server {

// Thread-safe, as gRPC calls it.
class Service final
    : public attn::v1::AttentionService::WithCallbackMethod_GetServerInfo<
          attn::v1::AttentionService::Service> {
 public:
  // `info` is what GetServerInfo answers, apart from what changes.
  Service(ServiceParts parts, attn::v1::GetServerInfoResponse info);

  grpc::ServerUnaryReactor* GetServerInfo(
      grpc::CallbackServerContext* context,
      const attn::v1::GetServerInfoRequest* request,
      attn::v1::GetServerInfoResponse* response) override;

 private:
  // From now on `op` is served by the method at `index` of the service.
  void Serve(int index, Op op);

  const ServiceParts parts_;
  const attn::v1::GetServerInfoResponse info_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_SERVICE_H_
