#include "server/front/service.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "google/protobuf/unknown_field_set.h"
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

// Calls of GetServerInfo at once, of all clients and of one: they are over in a
// moment, unless a client is slow.
constexpr int kInfoCalls = 1024;
constexpr int kInfoCallsPerClient = 256;

CallRecord InfoRecord(const SmallCaller& caller, const absl::Status& status,
                      absl::Duration total) {
  CallRecord record;
  record.method = Method::kGetServerInfo;
  record.status = status;
  record.code = status.code();
  record.total = total;
  record.ids = caller.ids;
  record.client = caller.client;
  return record;
}

}  // namespace

Service::Service(ServiceParts parts, attn::v1::GetServerInfoResponse info)
    : parts_(std::move(parts)),
      info_(std::move(info)),
      small_reads_(*parts_.alarms, parts_.excess_memory),
      small_calls_{parts_.alarms, &small_reads_, parts_.stall_time},
      info_calls_("calls of GetServerInfo at once", kInfoCalls,
                  kInfoCallsPerClient),
      answer_(AnswerBy<attn::v1::GetServerInfoRequest,
                       attn::v1::GetServerInfoResponse>(
          [this](const auto& caller, const auto& request, auto& response) {
            return Answer(caller, request, response);
          })),
      admit_([this](const auto& context, auto& caller) {
        return Admit(context, caller);
      }) {
  for (const int index : {kForwardIndex, kBackwardIndex, kGetServerInfoIndex}) {
    // To gRPC's server it is a streaming method from here on. The descriptor,
    // which reflection shows, and what goes over the wire stay those of a unary
    // one.
    MarkMethodStreamed(index, nullptr);
    MarkMethodRaw(index);
  }
  MarkMethodRaw(kExchangeIndex);
  const auto unary = [this](Op op) {
    return [this, op] { return std::make_shared<UnaryStream>(parts_, op); };
  };
  forward_ = Calls(kForwardIndex, unary(Op::kForward));
  backward_ = Calls(kBackwardIndex, unary(Op::kBackward));
  exchange_ = Calls(kExchangeIndex, [this] {
    return std::make_shared<ExchangeStream>(parts_);
  });
  get_info_ = Calls(kGetServerInfoIndex, [this] {
    return std::make_shared<SmallUnaryCall>(small_calls_, info_calls_, answer_,
                                            admit_);
  });
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
    GrpcCall::Await(get_info_, threads, *queue);
  }
}

absl::Status Service::Admit(const grpc::ServerContextBase& context,
                            SmallCaller& caller) const {
  absl::StatusOr<Caller> known = CallerOf(context, *parts_.callers);
  if (known.ok()) {
    caller.client = std::move(known->client);
    return absl::OkStatus();
  }
  parts_.calls->Add(InfoRecord(caller, known.status(), absl::ZeroDuration()),
                    MonotonicNow());
  return known.status();
}

attn::v1::GetServerInfoResponse Service::info() const {
  attn::v1::GetServerInfoResponse info = info_;
  const uint64_t in_service = parts_.scheduler->in_service();
  for (int i = 0; i < info.devices_size(); ++i) {
    info.mutable_devices(i)->set_in_service((in_service >> i & 1) != 0);
  }
  return info;
}

absl::Status Service::Answer(const SmallCaller& caller,
                             const attn::v1::GetServerInfoRequest& request,
                             attn::v1::GetServerInfoResponse& response) const {
  const absl::Time started = MonotonicNow();
  absl::Status status;
  const auto& unknown = request.GetReflection()->GetUnknownFields(request);
  if (unknown.empty()) {
    response = info();
  } else {
    status = wire::UnknownFieldError("", request.GetDescriptor()->full_name(),
                                     unknown.field(0).number());
  }
  const absl::Time now = MonotonicNow();
  CallRecord record = InfoRecord(caller, status, now - started);
  record.received_bytes = static_cast<int64_t>(request.ByteSizeLong());
  if (status.ok()) {
    record.sent_bytes = static_cast<int64_t>(response.ByteSizeLong());
  }
  parts_.calls->Add(std::move(record), now);
  return status;
}

}  // namespace attnd::server
