#include "server/front/service.h"

#include <utility>

#include "base/clock.h"
#include "google/protobuf/unknown_field_set.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/status.h"
#include "server/front/exchange_reactor.h"
#include "server/front/unary_reactor.h"

namespace attnd::server {
namespace {

using Handler =
    grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>;

// As the methods are declared in attention.proto.
enum MethodIndex { kForwardIndex = 0, kBackwardIndex = 1, kExchangeIndex = 3 };

}  // namespace

Service::Service(ServiceParts parts, attn::v1::GetServerInfoResponse info)
    : parts_(std::move(parts)), info_(std::move(info)) {
  Serve(kForwardIndex, Op::kForward);
  Serve(kBackwardIndex, Op::kBackward);
  MarkMethodRawCallback(
      kExchangeIndex, new Handler([this](grpc::CallbackServerContext* context) {
        return ExchangeReactor::Start(parts_, *context);
      }));
}

void Service::Serve(int index, Op op) {
  // To gRPC's server it is a streaming method from here on. The descriptor,
  // which reflection shows, and what goes over the wire stay those of a unary
  // one.
  MarkMethodStreamed(index, nullptr);
  MarkMethodRawCallback(
      index, new Handler([this, op](grpc::CallbackServerContext* context) {
        return UnaryReactor::Start(parts_, op, *context);
      }));
}

grpc::ServerUnaryReactor* Service::GetServerInfo(
    grpc::CallbackServerContext* context,
    const attn::v1::GetServerInfoRequest* request,
    attn::v1::GetServerInfoResponse* response) {
  const absl::Time started = MonotonicNow();
  grpc::Status status;
  const auto& unknown = request->GetReflection()->GetUnknownFields(*request);
  if (unknown.empty()) {
    *response = info_;
    const SchedulerStats stats = parts_.scheduler->stats();
    for (int i = 0; i < response->devices_size(); ++i) {
      response->mutable_devices(i)->set_in_service(
          stats.device_in_service.at(i));
    }
  } else {
    status = wire::ToGrpcStatus(wire::UnknownFieldError(
        "", request->GetDescriptor()->full_name(), unknown.field(0).number()));
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  parts_.metrics->CallEnded(
      Method::kGetServerInfo,
      static_cast<absl::StatusCode>(status.error_code()),
      MonotonicNow() - started, static_cast<int64_t>(request->ByteSizeLong()),
      status.ok() ? static_cast<int64_t>(response->ByteSizeLong()) : 0);
  reactor->Finish(status);
  return reactor;
}

}  // namespace attnd::server
