#include "tests/bench/empty_stream.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "attn/v1/attention.grpc.pb.h"
#include "tests/bench/echo_grpc.h"

namespace attnd::bench {
namespace {

class EmptyReactor final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  EmptyReactor() : response_(&empty_, 1) { StartRead(&request_); }

  void OnReadDone(bool /*ok*/) override {
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  const grpc::Slice empty_;
  grpc::ByteBuffer request_, response_;
};

class EmptyService final : public attn::v1::AttentionService::Service {
 public:
  EmptyService() {
    using Handler =
        grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>;
    constexpr int kForward = 0;
    MarkMethodStreamed(kForward, nullptr);
    MarkMethodRawCallback(kForward,
                          new Handler([](auto*) { return new EmptyReactor; }));
  }
};

}  // namespace

void ServeEmptyStream() {
  grpc::EnableDefaultHealthCheckService(true);
  EmptyService service;
  ServeEcho(service);
}

}  // namespace attnd::bench
