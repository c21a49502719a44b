#include "tests/bench/empty_caller.h"

#include <cstdio>
#include <cstdlib>

namespace attnd::bench {

EmptyCaller::EmptyCaller(const std::string& target, const char* method)
    : method_(method) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  stub_ = std::make_unique<grpc::GenericStub>(grpc::CreateCustomChannel(
      target, grpc::InsecureChannelCredentials(), arguments));
}

void EmptyCaller::Call() {
  grpc::ClientContext context;
  grpc::ByteBuffer request(&empty_, 1), response;
  grpc::Status status;
  auto call = stub_->PrepareUnaryCall(&context, method_, request, &queue_);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  queue_.Next(&tag, &ok);
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", method_, status.error_message().c_str());
    std::exit(1);
  }
}

}  // namespace attnd::bench
