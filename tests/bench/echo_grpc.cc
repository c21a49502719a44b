#include "tests/bench/echo_grpc.h"

#include <cstdio>
#include <cstdlib>

#include "tests/bench/peer_process.h"

namespace attnd::bench {

void ServeEcho(grpc::Service& service,
               const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort("127.0.0.1:0", credentials, &port);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ServeUntilParentIsDone(port);
  server->Shutdown();
}

std::shared_ptr<grpc::Channel> ConnectEcho(
    const std::string& target,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(target, credentials, arguments);
}

void CheckEcho(const char* echo, const grpc::Status& status, size_t received,
               const Exchange& exchange) {
  if (status.ok() && received == exchange.bytes) return;
  std::fprintf(stderr, "%s echo: %s\n", echo, status.error_message().c_str());
  std::exit(1);
}

}  // namespace attnd::bench
