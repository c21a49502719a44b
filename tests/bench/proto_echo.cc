#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "attn/v1/attention.grpc.pb.h"
#include "tests/bench/echo_peers.h"
#include "tests/bench/peer_process.h"

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
  int port = 0;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ServeUntilParentIsDone(port);
  server->Shutdown();
}

EchoCall ConnectProtoEcho(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  std::shared_ptr<attn::v1::AttentionService::Stub> stub =
      attn::v1::AttentionService::NewStub(grpc::CreateCustomChannel(
          target, grpc::InsecureChannelCredentials(), arguments));
  return [stub](const Exchange& exchange) {
    attn::v1::ForwardRequest request;
    attn::v1::ForwardResponse response;
    request.mutable_q()->set_data(exchange.in[0], exchange.bytes);
    request.mutable_k()->set_data(exchange.in[1], exchange.bytes);
    request.mutable_v()->set_data(exchange.in[2], exchange.bytes);
    grpc::ClientContext context;
    const grpc::Status status = stub->Forward(&context, request, &response);
    if (!status.ok() || response.o().data().size() != exchange.bytes) {
      std::fprintf(stderr, "proto echo: %s\n", status.error_message().c_str());
      std::exit(1);
    }
    std::memcpy(exchange.out, response.o().data().data(), exchange.bytes);
  };
}

}  // namespace attnd::bench
