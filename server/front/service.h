#ifndef ATTND_SERVER_FRONT_SERVICE_H_
#define ATTND_SERVER_FRONT_SERVICE_H_

// attn.v1.AttentionService over gRPC's callback API. Forward and Backward take
// raw ByteBuffers, so that tensor bytes never pass through protobuf.

#include "attn/v1/attention.grpc.pb.h"
#include "grpcpp/support/message_allocator.h"
#include "server/front/call.h"

namespace attnd::server {

// Thread-safe, as gRPC calls it.
class Service final
    : public attn::v1::AttentionService::WithRawCallbackMethod_Forward<
          attn::v1::AttentionService::WithRawCallbackMethod_Backward<
              attn::v1::AttentionService::WithCallbackMethod_GetServerInfo<
                  attn::v1::AttentionService::Service>>> {
 public:
  // `info` is what GetServerInfo answers, apart from what changes.
  Service(ServiceParts parts, attn::v1::GetServerInfoResponse info);

  grpc::ServerUnaryReactor* Forward(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Backward(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(
      grpc::CallbackServerContext* context,
      const attn::v1::GetServerInfoRequest* request,
      attn::v1::GetServerInfoResponse* response) override;

 private:
  class Allocator final
      : public grpc::MessageAllocator<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    explicit Allocator(const ServiceParts& parts) : parts_(parts) {}
    grpc::MessageHolder<grpc::ByteBuffer, grpc::ByteBuffer>* AllocateMessages()
        override;

   private:
    const ServiceParts& parts_;
  };

  const ServiceParts parts_;
  const attn::v1::GetServerInfoResponse info_;
  Allocator allocator_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_SERVICE_H_
