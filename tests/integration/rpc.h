#ifndef ATTND_TESTS_INTEGRATION_RPC_H_
#define ATTND_TESTS_INTEGRATION_RPC_H_

// Calls as any gRPC client would make them, down to raw bytes.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "attn/v1/attention.grpc.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "kernels/attention.h"
#include "tests/hang_limit.h"

namespace attnd::testing {

// A channel with a connection of its own and no limit on messages.
std::shared_ptr<grpc::Channel> Connect(const std::string& target);

struct RawOptions {
  absl::Duration timeout = kHangLimit;
  bool gzip = false;
};

// Sends `request` as it is to Forward or Backward.
absl::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, Op op,
                     const grpc::ByteBuffer& request,
                     const RawOptions& options = {});
absl::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, Op op,
                     const std::string& request,
                     const RawOptions& options = {});

// A typed call; its status with details.
absl::Status Forward(const std::shared_ptr<grpc::Channel>& channel,
                     const attn::v1::ForwardRequest& request,
                     attn::v1::ForwardResponse& response,
                     absl::Duration timeout = kHangLimit);
absl::Status Backward(const std::shared_ptr<grpc::Channel>& channel,
                      const attn::v1::BackwardRequest& request,
                      attn::v1::BackwardResponse& response,
                      absl::Duration timeout = kHangLimit);

// An asynchronous typed call. Its destructor cancels and waits.
template <class Request, class Response>
class PendingCall {
 public:
  PendingCall(const std::shared_ptr<grpc::Channel>& channel, Request request,
              absl::Duration timeout = kHangLimit);
  ~PendingCall();

  void Cancel() { context_.TryCancel(); }
  bool WaitFor(absl::Duration timeout);
  const absl::Status& Wait();  // its status, once it has ended
  const Response& response() const { return response_; }

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::unique_ptr<attn::v1::AttentionService::Stub> stub_;
  grpc::ClientContext context_;
  Request request_;
  Response response_;
};
using PendingForward =
    PendingCall<attn::v1::ForwardRequest, attn::v1::ForwardResponse>;
using PendingBackward =
    PendingCall<attn::v1::BackwardRequest, attn::v1::BackwardResponse>;

// SERVING, NOT_SERVING, ... of `service`, or the call's error.
std::string Health(const std::shared_ptr<grpc::Channel>& channel,
                   const std::string& service = "");

// A forward of random data over [1, len, heads, dim]; about
// 4 * len^2 * heads * dim floating-point operations.
attn::v1::ForwardRequest RandomForward(int64_t len, int64_t heads, int64_t dim);

// A forward of 6 MiB by the slowest algorithm, some 50 minutes of two cores: it
// keeps a lane busy until it is cancelled.
attn::v1::ForwardRequest EndlessForward();

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_RPC_H_
