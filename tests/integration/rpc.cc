#include "tests/integration/rpc.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/errno_of_connect.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "proto/wire/grpc_status.h"
#include "tests/server/bad_requests.h"

namespace attnd::testing {
namespace {

std::string Name(Op op) {
  return op == Op::kForward ? "/attn.v1.AttentionService/Forward"
                            : "/attn.v1.AttentionService/Backward";
}

// One call's end, waited for.
struct Ending {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<absl::Status> status;

  void Set(const grpc::Status& from) {
    std::lock_guard lock(mutex);
    status = wire::FromGrpcStatus(from);
    changed.notify_all();
  }
  bool WaitFor(absl::Duration timeout) {
    std::unique_lock lock(mutex);
    return changed.wait_until(lock, absl::ToChronoTime(absl::Now() + timeout),
                              [this] { return status.has_value(); });
  }
};

absl::Status Unary(const std::shared_ptr<grpc::Channel>& channel,
                   const std::string& method, const grpc::ByteBuffer& request,
                   grpc::ByteBuffer& response, const RawOptions& options) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
  if (options.gzip) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  Ending ending;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                 [&ending](const grpc::Status& status) { ending.Set(status); });
  ending.WaitFor(absl::InfiniteDuration());
  return *ending.status;
}

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string ToString(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  (void)buffer.Dump(&slices);
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(),
                                   arguments);
}

// gRPC (1.51) leaks a request that was refused half sent. Afterwards its
// shutdown takes 10 s, and the callback queue is at times freed twice when the
// last channel that used it goes. So one channel that has used it stays.
void KeepGrpcUp() {
  KeepErrnoOfConnect();
  static auto* const channel = new std::shared_ptr<grpc::Channel>(
      NewChannel("unix:/nonexistent/socket"));
  grpc::ByteBuffer response;
  (void)Unary(*channel, Name(Op::kForward), ToBuffer(""), response, {});
}

}  // namespace

std::shared_ptr<grpc::Channel> Connect(const std::string& target) {
  [[maybe_unused]] static const bool kept = (KeepGrpcUp(), true);
  return NewChannel(target);
}

absl::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, Op op,
                     const grpc::ByteBuffer& request,
                     const RawOptions& options) {
  grpc::ByteBuffer response;
  return Unary(channel, Name(op), request, response, options);
}

absl::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, Op op,
                     const std::string& request, const RawOptions& options) {
  return RawCall(channel, op, ToBuffer(request), options);
}

absl::Status Forward(const std::shared_ptr<grpc::Channel>& channel,
                     const attn::v1::ForwardRequest& request,
                     attn::v1::ForwardResponse& response,
                     absl::Duration timeout) {
  const auto stub = attn::v1::AttentionService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  return wire::FromGrpcStatus(stub->Forward(&context, request, &response));
}

absl::Status Backward(const std::shared_ptr<grpc::Channel>& channel,
                      const attn::v1::BackwardRequest& request,
                      attn::v1::BackwardResponse& response,
                      absl::Duration timeout) {
  const auto stub = attn::v1::AttentionService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  return wire::FromGrpcStatus(stub->Backward(&context, request, &response));
}

template <class Request, class Response>
struct PendingCall<Request, Response>::State : Ending {};

template <class Request, class Response>
PendingCall<Request, Response>::PendingCall(
    const std::shared_ptr<grpc::Channel>& channel, Request request,
    absl::Duration timeout)
    : state_(std::make_shared<State>()),
      stub_(attn::v1::AttentionService::NewStub(channel)),
      request_(std::move(request)) {
  context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  const auto end = [state = state_](const grpc::Status& status) {
    state->Set(status);
  };
  if constexpr (std::is_same_v<Request, attn::v1::ForwardRequest>) {
    stub_->async()->Forward(&context_, &request_, &response_, end);
  } else {
    stub_->async()->Backward(&context_, &request_, &response_, end);
  }
}

template <class Request, class Response>
PendingCall<Request, Response>::~PendingCall() {
  context_.TryCancel();
  (void)Wait();
}

template <class Request, class Response>
bool PendingCall<Request, Response>::WaitFor(absl::Duration timeout) {
  return state_->WaitFor(timeout);
}

template <class Request, class Response>
const absl::Status& PendingCall<Request, Response>::Wait() {
  state_->WaitFor(absl::InfiniteDuration());
  return *state_->status;
}

template class PendingCall<attn::v1::ForwardRequest, attn::v1::ForwardResponse>;
template class PendingCall<attn::v1::BackwardRequest,
                           attn::v1::BackwardResponse>;

std::string Health(const std::shared_ptr<grpc::Channel>& channel,
                   const std::string& service) {
  // HealthCheckRequest {string service = 1}, HealthCheckResponse {status = 1}.
  std::string request;
  if (!service.empty()) {
    request =
        absl::StrCat("\x0a", std::string(1, char(service.size())), service);
  }
  grpc::ByteBuffer response;
  const absl::Status status = Unary(channel, "/grpc.health.v1.Health/Check",
                                    ToBuffer(request), response, {});
  if (!status.ok()) return status.ToString();
  const std::string bytes = ToString(response);
  if (bytes == "\x08\x01") return "SERVING";
  return bytes == "\x08\x02" ? "NOT_SERVING" : "UNKNOWN";
}

attn::v1::ForwardRequest RandomForward(int64_t len, int64_t heads,
                                       int64_t dim) {
  attn::v1::ForwardRequest request;
  for (attn::v1::Tensor* tensor :
       {request.mutable_q(), request.mutable_k(), request.mutable_v()}) {
    *tensor = server::RandomTensor({1, len, heads, dim});
  }
  return request;
}

attn::v1::ForwardRequest EndlessForward() {
  constexpr int64_t kLen = 1 << 19, kHeads = 2;
  attn::v1::ForwardRequest request;
  for (attn::v1::Tensor* tensor :
       {request.mutable_q(), request.mutable_k(), request.mutable_v()}) {
    tensor->set_dtype(attn::v1::DATA_TYPE_BF16);
    for (const int64_t size : {int64_t{1}, kLen, kHeads, int64_t{1}}) {
      tensor->add_shape(size);
    }
    tensor->set_data(std::string(kLen * kHeads * 2, '\0'));
  }
  request.mutable_options()->set_algorithm(attn::v1::ALGORITHM_ONLINE_SOFTMAX);
  return request;
}

}  // namespace attnd::testing
