#include <grpcpp/grpcpp.h>

#include <cstring>

#include "attn/v1/attention.grpc.pb.h"
#include "tests/bench/echo_grpc.h"
#include "tests/bench/echo_peers.h"

namespace attnd::bench {
namespace {

class ProtoEcho : public attn::v1::AttentionService::CallbackService {
 public:
  grpc::ServerUnaryReactor* Forward(
      grpc::CallbackServerContext* context,
      const attn::v1::ForwardRequest* request,
      attn::v1::ForwardResponse* response) override {
    *response->mutable_o() = request->q();
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

}  // namespace

void ServeProtoEcho() {
  ProtoEcho service;
  ServeEcho(service);
}

EchoCall ConnectProtoEcho(const std::string& target) {
  std::shared_ptr<attn::v1::AttentionService::Stub> stub =
      attn::v1::AttentionService::NewStub(ConnectEcho(target));
  return [stub](const Exchange& exchange) {
    attn::v1::ForwardRequest request;
    attn::v1::ForwardResponse response;
    request.mutable_q()->set_data(exchange.in[0], exchange.bytes);
    request.mutable_k()->set_data(exchange.in[1], exchange.bytes);
    request.mutable_v()->set_data(exchange.in[2], exchange.bytes);
    grpc::ClientContext context;
    const grpc::Status status = stub->Forward(&context, request, &response);
    CheckEcho("proto", status, response.o().data().size(), exchange);
    std::memcpy(exchange.out, response.o().data().data(), exchange.bytes);
  };
}

}  // namespace attnd::bench
