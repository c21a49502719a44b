#include "server/front/decode.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attn/v1/attention.pb.h"
#include "base/field_error.h"
#include "kernels/request.h"
#include "proto/wire/codec.h"
#include "proto/wire/fields.h"
#include "proto/wire/message_arena.h"
#include "server/front/known_requests.h"
#include "server/front/proto_enums.h"
#include "server/front/region_fields.h"
#include "server/front/tensor_fields.h"

namespace attnd::server {
namespace {

namespace pb = ::attn::v1;

std::string Path(TensorId id, absl::string_view part) {
  return absl::StrCat(TensorName(id), ".", part);
}

// What is streamed belongs in an Exchange; `streamed` is null elsewhere.
absl::Status NotStreamed(TensorId id) {
  return FieldError(Path(id, "streamed"), "only in an Exchange");
}

absl::Status AddInput(TensorId id, const pb::Tensor& tensor, RequestSpec& spec,
                      Streamed* streamed) {
  // Request::Create says which ranks a tensor may have; this one only bounds
  // what is copied to it.
  constexpr int kMaxRank = 16;
  if (tensor.shape_size() > kMaxRank) {
    return FieldError(Path(id, "shape"),
                      absl::StrCat("has rank ", tensor.shape_size()));
  }
  auto dtype = FromProto(tensor.dtype(), id);
  if (!dtype.ok()) return dtype.status();
  TensorSpec& to = spec.inputs[id].emplace();
  to.dtype = *dtype;
  to.shape.assign(tensor.shape().begin(), tensor.shape().end());
  if (!tensor.has_streamed()) return absl::OkStatus();
  if (streamed == nullptr) return NotStreamed(id);
  streamed->inputs[id] = true;
  return absl::OkStatus();
}

absl::Status AddOutput(TensorId id, const pb::OutputSpec& output,
                       RequestSpec& spec, Streamed* streamed) {
  OutputSpec& to = spec.outputs[id];
  to.want = !output.has_want() || output.want();
  if (output.has_streamed()) {
    if (streamed == nullptr) return NotStreamed(id);
    streamed->outputs[id] = true;
  }
  if (output.dtype() == pb::DATA_TYPE_UNSPECIFIED) return absl::OkStatus();
  auto dtype = FromProto(output.dtype(), id);
  if (!dtype.ok()) return dtype.status();
  to.dtype = *dtype;
  return absl::OkStatus();
}

absl::Status AddList(absl::string_view field,
                     const google::protobuf::RepeatedField<int64_t>& from,
                     std::vector<int64_t>& to) {
  if (from.size() > kMaxSequences) {
    return FieldError(
        field, absl::StrCat("has ", from.size(), " entries, the most is ",
                            kMaxSequences));
  }
  to.assign(from.begin(), from.end());
  return absl::OkStatus();
}

absl::Status AddAttention(const pb::Attention& attention, RequestSpec& spec) {
  auto layout = FromProto(attention.layout());
  if (!layout.ok()) return layout.status();
  spec.layout = *layout;
  if (attention.has_scale()) spec.scale = attention.scale();
  if (attention.has_softcap()) spec.softcap = attention.softcap();
  spec.mask.causal = attention.mask().causal();
  if (attention.mask().has_window_left()) {
    spec.mask.left = attention.mask().window_left();
  }
  if (attention.mask().has_window_right()) {
    spec.mask.right = attention.mask().window_right();
  }
  if (attention.has_q_stride()) spec.q_stride = attention.q_stride();
  if (attention.has_kv_stride()) spec.kv_stride = attention.kv_stride();
  absl::Status status =
      AddList("attention.q_lens", attention.q_lens(), spec.q_lens);
  status.Update(
      AddList("attention.kv_lens", attention.kv_lens(), spec.kv_lens));
  status.Update(
      AddList("attention.q_start", attention.q_start(), spec.q_start));
  status.Update(
      AddList("attention.kv_start", attention.kv_start(), spec.kv_start));
  return status;
}

absl::Status AddOptions(const pb::ExecutionOptions& options, RequestSpec& spec,
                        Work& work) {
  auto algorithm = FromProto(options.algorithm());
  if (!algorithm.ok()) return algorithm.status();
  spec.algorithm = *algorithm;
  spec.deterministic = options.deterministic();
  auto plan = FromProto(options.plan());
  if (!plan.ok()) return plan.status();
  spec.plan = *plan;
  auto priority = FromProto(options.priority());
  if (!priority.ok()) return priority.status();
  work.priority = *priority;
  return absl::OkStatus();
}

// The tensors of a request of either kind, in the order of its tables.
absl::Status AddTensors(wire::Fields message,
                        absl::Span<const TensorField> inputs,
                        absl::Span<const TensorField> outputs,
                        RequestSpec& spec, Streamed* streamed) {
  absl::Status status;
  for (const auto& [number, id] : inputs) {
    if (!message.Has(number)) continue;
    status.Update(
        AddInput(id, message.Get<pb::Tensor>(number), spec, streamed));
  }
  for (const auto& [number, id] : outputs) {
    status.Update(
        AddOutput(id, message.Get<pb::OutputSpec>(number), spec, streamed));
  }
  return status;
}

// Whether its bytes are in the message that describes it.
bool IsInMessage(const TensorField& field, const Work& work) {
  return work.request->input(field.id).present &&
         !std::holds_alternative<RegionBytes>(work.inputs[field.id]);
}

absl::Status WrongSize(const TensorField& field, int64_t has, int64_t needs) {
  return FieldError(
      Path(field.id, "data"),
      absl::StrFormat("has %d bytes, its shape and dtype need %d", has, needs));
}

ConstHostSpan SpanOf(absl::string_view bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

// Gives each input that is in no region its bytes, exactly as many as its shape
// says.
absl::Status AddData(absl::Span<const TensorField> inputs,
                     const std::vector<wire::TensorData>& data, Work& work) {
  for (const TensorField& field : inputs) {
    if (!IsInMessage(field, work)) continue;
    const Request::Tensor& tensor = work.request->input(field.id);
    const wire::TensorData* found = nullptr;
    for (const wire::TensorData& entry : data) {
      if (entry.field == field.number) found = &entry;
    }
    if (found == nullptr) {
      return FieldError(Path(field.id, "data"), "missing");
    }
    if (found->bytes() != tensor.bytes) {
      return WrongSize(field, found->bytes(), tensor.bytes);
    }
    HostPieces& pieces = work.inputs[field.id].emplace<HostPieces>();
    pieces.reserve(found->pieces.size());
    for (absl::string_view piece : found->pieces) {
      pieces.push_back(SpanOf(piece));
    }
  }
  return absl::OkStatus();
}

// The request that `message` describes, into `work`, but for what its tensors
// are made of.
template <typename Message>
absl::Status AddRequest(Op op, absl::Span<const TensorField> inputs,
                        absl::Span<const TensorField> outputs, Message& message,
                        Streamed* streamed, Work& work) {
  RequestSpec spec;
  spec.op = op;
  absl::Status status =
      AddTensors(wire::Fields(message), inputs, outputs, spec, streamed);
  status.Update(AddAttention(message.attention(), spec));
  status.Update(AddOptions(message.options(), spec, work));
  if (!status.ok()) return status;
  auto request = Request::Create(std::move(spec));
  if (!request.ok()) return request.status();
  work.request = *std::move(request);
  return absl::OkStatus();
}

// Whether all of `work` is what slices of regions say.
bool IsByReference(absl::Span<const TensorField> inputs, const Work& work) {
  return std::none_of(
      inputs.begin(), inputs.end(),
      [&work](const TensorField& field) { return IsInMessage(field, work); });
}

template <typename Message>
absl::Status DecodeMessage(Op op, absl::Span<const TensorField> inputs,
                           absl::Span<const TensorField> outputs,
                           absl::Span<const absl::string_view> fragments,
                           const RegionLookup* regions, Work& work) {
  thread_local KnownRequests known;
  const bool is_whole = fragments.size() == 1;
  if (is_whole) {
    if (const auto* entry = known.Find(op, fragments[0]); entry != nullptr) {
      work.request = entry->request;
      work.priority = entry->priority;
      return PlaceInRegions(entry->slices, regions, work);
    }
  }
  wire::MessageArena arena;
  Message& message = arena.New<Message>();
  std::vector<wire::TensorData> data;
  data.reserve(inputs.size());
  absl::Status status =
      wire::Decode(fragments, wire::UnknownFields::kRefuse, message, data);
  if (!status.ok()) return status;
  status = AddRequest(op, inputs, outputs, message, nullptr, work);
  if (!status.ok()) return status;
  const RegionSlices slices = SlicesOf(wire::Fields(message), *work.request);
  status = PlaceInRegions(slices, regions, work);
  if (!status.ok()) return status;
  if (is_whole && IsByReference(inputs, work)) {
    known.Add(op, fragments[0], {work.request, work.priority, slices});
  }
  return AddData(inputs, data, work);
}

// As AddData, from the message itself, of what is not streamed either.
absl::Status AddInlineData(absl::Span<const TensorField> inputs,
                           wire::Fields message, const Streamed& streamed,
                           Work& work) {
  for (const TensorField& field : inputs) {
    if (!IsInMessage(field, work) || streamed.inputs[field.id]) continue;
    const Request::Tensor& tensor = work.request->input(field.id);
    const auto& from = message.Get<pb::Tensor>(field.number);
    if (!from.has_data()) return FieldError(Path(field.id, "data"), "missing");
    const auto bytes = static_cast<int64_t>(from.data().size());
    if (bytes != tensor.bytes) return WrongSize(field, bytes, tensor.bytes);
    work.inputs[field.id].emplace<HostPieces>().push_back(SpanOf(from.data()));
  }
  return absl::OkStatus();
}

template <typename Message>
absl::Status AddExchanged(Op op, absl::Span<const TensorField> inputs,
                          absl::Span<const TensorField> outputs,
                          Message& message, const RegionLookup* regions,
                          TransferSpec& spec) {
  Work& work = *spec.work;
  absl::Status status =
      AddRequest(op, inputs, outputs, message, &spec.streamed, work);
  if (!status.ok()) return status;
  const wire::Fields fields(message);
  status = PlaceInRegions(SlicesOf(fields, *work.request), regions, work);
  if (!status.ok()) return status;
  return AddInlineData(inputs, fields, spec.streamed, work);
}

}  // namespace

absl::Status DecodeWork(Op op, absl::Span<const absl::string_view> fragments,
                        const RegionLookup* regions, Work& work) {
  return op == Op::kForward
             ? DecodeMessage<pb::ForwardRequest>(op, kForwardInputs,
                                                 kForwardOutputs, fragments,
                                                 regions, work)
             : DecodeMessage<pb::BackwardRequest>(op, kBackwardInputs,
                                                  kBackwardOutputs, fragments,
                                                  regions, work);
}

absl::StatusOr<TransferSpec> DecodeExchangeHeader(
    std::shared_ptr<pb::ExchangeRequest> message, const RegionLookup* regions) {
  pb::ExchangeHeader& header = *message->mutable_header();
  TransferSpec spec;
  spec.work = std::make_shared<Work>();
  spec.streams = header.streams();
  spec.chunk_bytes = header.chunk_bytes();
  absl::Status status;
  switch (header.call_case()) {
    case pb::ExchangeHeader::kForward:
      status = AddExchanged(Op::kForward, kForwardInputs, kForwardOutputs,
                            *header.mutable_forward(), regions, spec);
      break;
    case pb::ExchangeHeader::kBackward:
      status = AddExchanged(Op::kBackward, kBackwardInputs, kBackwardOutputs,
                            *header.mutable_backward(), regions, spec);
      break;
    case pb::ExchangeHeader::CALL_NOT_SET:
      status = FieldError("header", "has neither forward nor backward");
  }
  if (!status.ok()) return status;
  spec.work->release_inputs = [message = std::move(message)] {};
  return spec;
}

}  // namespace attnd::server
