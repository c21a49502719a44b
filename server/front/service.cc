#include "server/front/service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "google/protobuf/unknown_field_set.h"

namespace attnd::server {
namespace {

// As the methods are declared in attention.proto.
enum MethodIndex { kForwardIndex = 0, kBackwardIndex = 1 };

void UseAllocator(
    grpc::internal::MethodHandler* handler,
    grpc::MessageAllocator<grpc::ByteBuffer, grpc::ByteBuffer>* allocator) {
  using Handler =
      grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>;
  static_cast<Handler*>(handler)->SetMessageAllocator(allocator);
}

grpc::ServerUnaryReactor* StartCall(Op op,
                                    grpc::CallbackServerContext* context) {
  // Our allocator made it, so the state is the call.
  auto* call = static_cast<Call*>(context->GetRpcAllocatorState());
  call->Start(op, *context);
  return call;
}

}  // namespace

Service::Service(ServiceParts parts, attn::v1::GetServerInfoResponse info)
    : parts_(parts), info_(std::move(info)), allocator_(parts_) {
  // The generated raw methods have no SetMessageAllocatorFor_; this is what
  // the typed methods' does.
  UseAllocator(GetHandler(kForwardIndex), &allocator_);
  UseAllocator(GetHandler(kBackwardIndex), &allocator_);
}

grpc::MessageHolder<grpc::ByteBuffer, grpc::ByteBuffer>*
Service::Allocator::AllocateMessages() {
  return new Call(parts_);
}

grpc::ServerUnaryReactor* Service::Forward(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* /*request*/,
                                           grpc::ByteBuffer* /*response*/) {
  return StartCall(Op::kForward, context);
}

grpc::ServerUnaryReactor* Service::Backward(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* /*request*/,
    grpc::ByteBuffer* /*response*/) {
  return StartCall(Op::kBackward, context);
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
    status = {grpc::StatusCode::UNIMPLEMENTED,
              absl::StrCat("unknown field ", unknown.field(0).number())};
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
