#include "server/front/service.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "google/protobuf/unknown_field_set.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/status.h"
#include "server/front/exchange_stream.h"
#include "server/front/grpc_header.h"
#include "server/front/unary_stream.h"

namespace attnd::server {
namespace {

// As the methods are declared in attention.proto.
enum MethodIndex {
  kForwardIndex = 0,
  kBackwardIndex = 1,
  kGetServerInfoIndex = 2,
  kExchangeIndex = 3
};

// Calls of each kind that a thread awaits at once. A call for which its
// connection's thread awaits none goes to another thread.
constexpr int kAwaited = 16;

}  // namespace

Service::Service(ServiceParts parts, attn::v1::GetServerInfoResponse info)
    : parts_(std::move(parts)), info_(std::move(info)) {
  for (const int index : {kForwardIndex, kBackwardIndex}) {
    // To gRPC's server it is a streaming method from here on. The descriptor,
    // which reflection shows, and what goes over the wire stay those of a unary
    // one.
    MarkMethodStreamed(index, nullptr);
    MarkMethodRaw(index);
  }
  MarkMethodRaw(kExchangeIndex);
  MarkMethodAsync(kGetServerInfoIndex);
  const auto unary = [this](Op op) {
    return [this, op] { return std::make_shared<UnaryStream>(parts_, op); };
  };
  forward_ = Calls(kForwardIndex, unary(Op::kForward));
  backward_ = Calls(kBackwardIndex, unary(Op::kBackward));
  exchange_ = Calls(kExchangeIndex, [this] {
    return std::make_shared<ExchangeStream>(parts_);
  });
  get_info_ = {
      [this](grpc::ServerContext& context,
             attn::v1::GetServerInfoRequest* request,
             InfoCall::Responder& responder, grpc::ServerCompletionQueue& queue,
             Completion* done) {
        RequestAsyncUnary(kGetServerInfoIndex, &context, request, &responder,
                          &queue, &queue, done);
      },
      [this](const auto& context, const auto& request, auto& response) {
        return Answer(context, request, response);
      }};
}

GrpcCall::Kind Service::Calls(int index,
                              std::function<std::shared_ptr<GrpcCall>()> make) {
  return {[this, index](grpc::ServerContext& context, GrpcCall::Stream& stream,
                        grpc::ServerCompletionQueue& queue, Completion* done) {
            RequestAsyncBidiStreaming(index, &context, &stream, &queue, &queue,
                                      done);
          },
          std::move(make)};
}

void Service::Serve(IoThreads& threads) {
  for (const auto& queue : threads.queues()) {
    for (int i = 0; i < kAwaited; ++i) {
      for (const GrpcCall::Kind* kind : {&forward_, &backward_, &exchange_}) {
        GrpcCall::Await(*kind, threads, *queue);
      }
    }
    InfoCall::Await(get_info_, threads, *queue);
  }
}

grpc::Status Service::Answer(const grpc::ServerContext& context,
                             const attn::v1::GetServerInfoRequest& request,
                             attn::v1::GetServerInfoResponse& response) {
  const absl::Time started = MonotonicNow();
  grpc::Status status;
  const absl::StatusOr<Caller> caller = CallerOf(context, *parts_.callers);
  const auto& unknown = request.GetReflection()->GetUnknownFields(request);
  if (!caller.ok()) {
    status = wire::ToGrpcStatus(caller.status());
  } else if (unknown.empty()) {
    response = info_;
    const SchedulerStats stats = parts_.scheduler->stats();
    for (int i = 0; i < response.devices_size(); ++i) {
      response.mutable_devices(i)->set_in_service(
          stats.device_in_service.at(i));
    }
  } else {
    status = wire::ToGrpcStatus(wire::UnknownFieldError(
        "", request.GetDescriptor()->full_name(), unknown.field(0).number()));
  }
  parts_.metrics->CallEnded(
      Method::kGetServerInfo,
      static_cast<absl::StatusCode>(status.error_code()),
      MonotonicNow() - started, static_cast<int64_t>(request.ByteSizeLong()),
      status.ok() ? static_cast<int64_t>(response.ByteSizeLong()) : 0);
  return status;
}

}  // namespace attnd::server
