#include "tests/bench/empty_caller.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"

namespace attnd::bench {

EmptyCaller::EmptyCaller(const std::string& target, const char* method,
                         absl::Duration busy_poll)
    : method_(method), busy_poll_(busy_poll) {
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
  bool is_there = false;
  if (busy_poll_ > absl::ZeroDuration()) {
    const absl::Time end = MonotonicNow() + busy_poll_;
    while (!is_there && MonotonicNow() < end) {
      is_there = queue_.AsyncNext(&tag, &ok,
                                  std::chrono::system_clock::time_point()) ==
                 grpc::CompletionQueue::GOT_EVENT;
    }
  }
  if (!is_there) queue_.Next(&tag, &ok);
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", method_, status.error_message().c_str());
    std::exit(1);
  }
}

}  // namespace attnd::bench
