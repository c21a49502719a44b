#ifndef ATTND_SERVER_FRONT_SERVICE_H_
#define ATTND_SERVER_FRONT_SERVICE_H_

// attn.v1.AttentionService over gRPC. Forward, Backward and Exchange take raw
// ByteBuffers, so that tensor bytes never pass through protobuf, and read them
// when there is room (unary_stream.h, exchange_stream.h).

#include "attn/v1/attention.grpc.pb.h"
#include "server/front/call.h"
#include "server/front/grpc_call.h"
#include "server/front/io_threads.h"
#include "server/front/small_call.h"

namespace attnd::server {

class Service final : public attn::v1::AttentionService::Service {
 public:
  // `info` is what GetServerInfo answers, apart from what changes.
  Service(ServiceParts parts, attn::v1::GetServerInfoResponse info);

  // Serves calls on `threads`, from when the server has been built until it
  // shuts down.
  void Serve(IoThreads& threads);

  // GetServerInfo, for this service and for others that have it, too. While
  // this exists, by any thread.
  absl::Status Answer(const SmallCaller& caller,
                      const attn::v1::GetServerInfoRequest& request,
                      attn::v1::GetServerInfoResponse& response) const;

  // What it answers, but for unknown fields in a request, which it refuses.
  attn::v1::GetServerInfoResponse info() const;

  // For small calls of other services, which this outlives.
  const SmallCallParts& small_calls() const { return small_calls_; }

 private:
  // Whether a client may ask for GetServerInfo; names it, if it has a name.
  absl::Status Admit(const grpc::ServerContextBase& context,
                     SmallCaller& caller) const;
  // Calls of the method at `index` of the service.
  GrpcCall::Kind Calls(int index,
                       std::function<std::shared_ptr<GrpcCall>()> make);

  const ServiceParts parts_;
  const attn::v1::GetServerInfoResponse info_;
  SmallReads small_reads_;
  const SmallCallParts small_calls_;
  StreamLimits info_calls_;
  const UnaryAnswer answer_;
  const UnaryAdmission admit_;
  GrpcCall::Kind forward_, backward_, exchange_, get_info_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_SERVICE_H_
