#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "client/bad_response.h"
#include "client/messages.h"
#include "client/tensor_size.h"
#include "google/protobuf/message.h"
#include "proto/wire/fields.h"
#include "proto/wire/message_arena.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;

absl::Status Parse(Fragments fragments, google::protobuf::Message& header,
                   std::vector<wire::TensorData>& data) {
  absl::Status status =
      wire::Decode(fragments, wire::UnknownFields::kIgnore, header, data);
  if (status.ok()) return status;
  return BadResponse(header.GetDescriptor()->name(), status.message());
}

bool SameType(v1::DataType from, DType to) {
  switch (to) {
    case DType::kF32:
      return from == v1::DATA_TYPE_F32;
    case DType::kF16:
      return from == v1::DATA_TYPE_F16;
    case DType::kBF16:
      return from == v1::DATA_TYPE_BF16;
  }
  return false;
}

Algorithm FromProto(v1::Algorithm algorithm) {
  switch (algorithm) {
    case v1::ALGORITHM_NAIVE:
      return Algorithm::kNaive;
    case v1::ALGORITHM_ONLINE_SOFTMAX:
      return Algorithm::kOnlineSoftmax;
    case v1::ALGORITHM_FLASH_ATTENTION_1:
      return Algorithm::kFlashAttention1;
    case v1::ALGORITHM_FLASH_ATTENTION_2:
      return Algorithm::kFlashAttention2;
    default:
      return Algorithm::kAuto;
  }
}

Plan FromProto(v1::Plan plan) {
  switch (plan) {
    case v1::PLAN_ONE_DEVICE:
      return Plan::kOneDevice;
    case v1::PLAN_HEADS:
      return Plan::kHeads;
    case v1::PLAN_GATHER:
      return Plan::kGather;
    case v1::PLAN_RING:
      return Plan::kRing;
    case v1::PLAN_STRIPED:
      return Plan::kStriped;
    case v1::PLAN_ZIGZAG:
      return Plan::kZigzag;
    case v1::PLAN_KV:
      return Plan::kKv;
    default:
      return Plan::kAuto;
  }
}

void FillPlan(const v1::PlanReport& from, PlanReport& to) {
  to.plan = FromProto(from.plan());
  to.why = from.why();
  for (const v1::PlanDevice& device : from.devices()) {
    to.devices.push_back(
        {device.device(), absl::Nanoseconds(device.busy_ns())});
  }
  to.predicted = absl::Nanoseconds(from.predicted_ns());
}

void FillReport(const v1::ExecutionReport& from, Report& to) {
  to.device = from.device();
  to.kernel = from.kernel();
  to.algorithm = FromProto(from.algorithm());
  to.batch_requests = from.batch_requests();
  to.flops = from.flops();
  to.queue = absl::Nanoseconds(from.phases().queue_ns());
  to.upload = absl::Nanoseconds(from.phases().upload_ns());
  to.compute = absl::Nanoseconds(from.phases().compute_ns());
  to.download = absl::Nanoseconds(from.phases().download_ns());
  to.receive = absl::Nanoseconds(from.phases().receive_ns());
  if (from.has_plan()) FillPlan(from.plan(), to.plan.emplace());
}

// That the response's tensor is the one that was asked for.
absl::Status CheckOutput(const v1::Tensor& from, const Output& output) {
  const Tensor& to = output.tensor;
  if (!SameType(from.dtype(), to.dtype)) {
    return BadResponse(
        absl::StrCat(output.name, ".dtype"),
        absl::StrCat(v1::DataType_Name(from.dtype()), ", not as asked for"));
  }
  if (!std::equal(from.shape().begin(), from.shape().end(), to.shape.begin(),
                  to.shape.end())) {
    // A hostile shape may be long; say only what was expected of it.
    return BadResponse(absl::StrCat(output.name, ".shape"),
                       absl::StrCat("not ", ShapeText(to.shape)));
  }
  return absl::OkStatus();
}

// That it is in the region that was asked for, if any was.
absl::Status CheckPlace(const v1::Tensor& from, const Output& output) {
  const auto wrong = [&output](absl::string_view what) {
    return BadResponse(absl::StrCat(output.name, ".region"), what);
  };
  if (output.place.region == nullptr) {
    if (!from.has_region()) return absl::OkStatus();
    return wrong("is in a region, not as asked for");
  }
  if (!from.has_region()) {
    return wrong("is in no region, where it was asked for");
  }
  if (from.region().region() != output.place.region->id()) {
    return wrong("is in another region than asked for");
  }
  if (from.region().offset() != output.place.offset) {
    return wrong(absl::StrCat("is at ", from.region().offset(), ", not at ",
                              output.place.offset));
  }
  return absl::OkStatus();
}

absl::Status CopyOutput(absl::Span<const absl::string_view> pieces,
                        const Output& output) {
  const Tensor& to = output.tensor;
  const absl::StatusOr<int64_t> bytes =
      TensorBytes(output.name, to.dtype, to.shape);
  if (!bytes.ok()) return bytes.status();
  int64_t received = 0;
  for (const absl::string_view piece : pieces) received += piece.size();
  if (received != *bytes) {
    return BadResponse(
        absl::StrCat(output.name, ".data"),
        absl::StrCat(received, " bytes where ", *bytes, " are needed"));
  }
  char* next = static_cast<char*>(to.data);
  for (const absl::string_view piece : pieces) {
    if (piece.empty()) continue;
    std::memcpy(next, piece.data(), piece.size());
    next += piece.size();
  }
  return absl::OkStatus();
}

// The outputs of a response whose tensors' data is `data`, or in the tensors.
template <typename Response>
absl::Status TakeOutputs(Response& response,
                         absl::Span<const wire::TensorData> data,
                         absl::Span<const Output> outputs, Report& report) {
  const wire::Fields fields(response);
  for (const Output& output : outputs) {
    if (!fields.Has(output.field)) return BadResponse(output.name, "missing");
    const auto& tensor = fields.Get<v1::Tensor>(output.field);
    absl::Status status = CheckOutput(tensor, output);
    if (!status.ok()) return status;
    if (tensor.has_streamed() != output.streamed) {
      return BadResponse(output.name, output.streamed
                                          ? "is not streamed, as asked for"
                                          : "is streamed, not as asked for");
    }
    status = CheckPlace(tensor, output);
    if (!status.ok()) return status;
    if (output.streamed || output.place.region != nullptr) continue;
    const absl::string_view nested = tensor.data();
    absl::Span<const absl::string_view> pieces(&nested, 1);
    for (const wire::TensorData& entry : data) {
      if (entry.field == output.field) pieces = entry.pieces;
    }
    status = CopyOutput(pieces, output);
    if (!status.ok()) return status;
  }
  FillReport(response.report(), report);
  return absl::OkStatus();
}

template <typename Response>
absl::Status DecodeOutputs(Fragments fragments,
                           absl::Span<const Output> outputs, Report& report) {
  wire::MessageArena arena;
  auto& response = arena.New<Response>();
  std::vector<wire::TensorData> data;
  absl::Status status = Parse(fragments, response, data);
  if (!status.ok()) return status;
  return TakeOutputs(response, data, outputs, report);
}

// `part`: the response that it ought to be.
template <typename Response>
absl::Status DecodeExchange(Fragments fragments,
                            absl::Span<const Output> outputs, Report& report,
                            v1::ExchangeResponse::PartCase part,
                            Response* (v1::ExchangeResponse::*get)()) {
  wire::MessageArena arena;
  auto& message = arena.New<v1::ExchangeResponse>();
  std::vector<wire::TensorData> data;
  absl::Status status = Parse(fragments, message, data);
  if (!status.ok()) return status;
  if (message.part_case() != part) {
    return BadResponse("part", "the response to another kind of call");
  }
  return TakeOutputs(*(message.*get)(), {}, outputs, report);
}

// `request_field`: what asks for it.
void AddIfWanted(int field, const char* name, const Tensor& tensor,
                 int request_field, const Placement& placement,
                 std::vector<Output>& outputs) {
  if (tensor.shape.empty()) return;
  Output& output = outputs.emplace_back();
  output.field = field;
  output.name = name;
  output.tensor = tensor;
  const RegionPlace* place = placement.Find(request_field);
  if (place != nullptr) output.place = *place;
}

}  // namespace

std::vector<Output> Outputs(const ForwardCall& call,
                            const Placement& placement) {
  using Request = v1::ForwardRequest;
  using Response = v1::ForwardResponse;
  std::vector<Output> outputs;
  AddIfWanted(Response::kOFieldNumber, "o", call.o, Request::kOFieldNumber,
              placement, outputs);
  AddIfWanted(Response::kLseFieldNumber, "lse", call.lse,
              Request::kLseFieldNumber, placement, outputs);
  return outputs;
}

std::vector<Output> Outputs(const BackwardCall& call,
                            const Placement& placement) {
  using Request = v1::BackwardRequest;
  using Response = v1::BackwardResponse;
  std::vector<Output> outputs;
  AddIfWanted(Response::kDqFieldNumber, "dq", call.dq, Request::kDqFieldNumber,
              placement, outputs);
  AddIfWanted(Response::kDkFieldNumber, "dk", call.dk, Request::kDkFieldNumber,
              placement, outputs);
  AddIfWanted(Response::kDvFieldNumber, "dv", call.dv, Request::kDvFieldNumber,
              placement, outputs);
  return outputs;
}

absl::Status DecodeForward(Fragments fragments,
                           absl::Span<const Output> outputs, Report& report) {
  return DecodeOutputs<v1::ForwardResponse>(fragments, outputs, report);
}

absl::Status DecodeBackward(Fragments fragments,
                            absl::Span<const Output> outputs, Report& report) {
  return DecodeOutputs<v1::BackwardResponse>(fragments, outputs, report);
}

absl::Status DecodeForwardExchange(Fragments fragments,
                                   absl::Span<const Output> outputs,
                                   Report& report) {
  return DecodeExchange(fragments, outputs, report,
                        v1::ExchangeResponse::kForward,
                        &v1::ExchangeResponse::mutable_forward);
}

absl::Status DecodeBackwardExchange(Fragments fragments,
                                    absl::Span<const Output> outputs,
                                    Report& report) {
  return DecodeExchange(fragments, outputs, report,
                        v1::ExchangeResponse::kBackward,
                        &v1::ExchangeResponse::mutable_backward);
}

absl::Status DecodeServerInfo(Fragments fragments, ServerInfo& info) {
  v1::GetServerInfoResponse from;
  std::vector<wire::TensorData> data;
  if (absl::Status status = Parse(fragments, from, data); !status.ok()) {
    return status;
  }
  info.server_instance_id = from.server_instance_id();
  info.version = from.version();
  info.features.assign(from.features().begin(), from.features().end());
  for (const v1::Device& device : from.devices()) {
    info.devices.push_back({device.kind(), device.index(), device.name(),
                            device.memory_bytes(), device.in_service()});
  }
  info.max_message_bytes = from.limits().max_message_bytes();
  info.memory_limit_bytes = from.limits().memory_limit_bytes();
  info.max_queue_requests = from.limits().max_queue_requests();
  info.max_queue_flops = from.limits().max_queue_flops();
  info.max_request_flops = from.limits().max_request_flops();
  info.max_head_dim = from.limits().max_head_dim();
  info.max_request_sequences = from.limits().max_request_sequences();
  info.max_transfer_streams = from.limits().max_transfer_streams();
  info.preferred_chunk_bytes = from.preferred_chunk_bytes();
  info.region_bytes = from.limits().region_bytes();
  return absl::OkStatus();
}

absl::Status DecodeHealthCheck(Fragments fragments) {
  // HealthCheckResponse { enum ServingStatus status = 1; }; SERVING is 1.
  // Other fields than the first are for later versions of it.
  std::string bytes;
  for (const absl::string_view fragment : fragments) {
    bytes.append(fragment.data(), fragment.size());
  }
  if (bytes.size() < 2 || bytes[0] != 1 << 3) {
    return absl::UnavailableError("the server's health is unknown");
  }
  if (bytes[1] != 1) return absl::UnavailableError("the server is not serving");
  return absl::OkStatus();
}

}  // namespace attnd::client
