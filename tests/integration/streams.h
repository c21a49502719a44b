#ifndef ATTND_TESTS_INTEGRATION_STREAMS_H_
#define ATTND_TESTS_INTEGRATION_STREAMS_H_

// Calls of services of which only the messages are generated.

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "grpcpp/impl/codegen/rpc_method.h"
#include "grpcpp/impl/codegen/sync_stream.h"
#include "proto/wire/grpc_status.h"
#include "tests/hang_limit.h"

namespace attnd::testing {

template <class Request, class Response>
absl::Status CallUnary(const std::shared_ptr<grpc::Channel>& channel,
                       const std::string& path, const Request& request,
                       Response& response) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kHangLimit));
  const grpc::internal::RpcMethod method(path.c_str(),
                                         grpc::internal::RpcMethod::NORMAL_RPC);
  return wire::FromGrpcStatus(grpc::internal::BlockingUnaryCall(
      channel.get(), method, &context, request, &response));
}

// A stream in both directions, which ends with it.
template <class Request, class Response>
class Stream {
 public:
  Stream(const std::shared_ptr<grpc::Channel>& channel, std::string path)
      : channel_(channel), path_(std::move(path)) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + kHangLimit));
    const grpc::internal::RpcMethod method(
        path_.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING);
    stream_.reset(
        grpc::internal::ClientReaderWriterFactory<Request, Response>::Create(
            channel_.get(), method, &context_));
  }
  ~Stream() {
    if (ended_) return;
    context_.TryCancel();
    (void)End();
  }

  bool Send(const Request& request) { return stream_->Write(request); }
  // None: it has ended.
  std::optional<Response> Next() {
    Response response;
    if (!stream_->Read(&response)) return std::nullopt;
    return response;
  }
  std::optional<Response> Ask(const Request& request) {
    if (!Send(request)) return std::nullopt;
    return Next();
  }
  // Its status, once the server has ended it.
  absl::Status End() {
    ended_ = true;
    while (Next().has_value()) {
    }
    return wire::FromGrpcStatus(stream_->Finish());
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::string path_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriterInterface<Request, Response>> stream_;
  bool ended_ = false;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_STREAMS_H_
