#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "client/call_tensors.h"
#include "client/check_enum.h"
#include "client/messages.h"
#include "client/request_writer.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/wire/message_arena.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;

v1::Layout ToProto(Layout layout) {
  switch (layout) {
    case Layout::kBshd:
      return v1::LAYOUT_BSHD;
    case Layout::kBhsd:
      return v1::LAYOUT_BHSD;
    case Layout::kPacked:
      return v1::LAYOUT_PACKED;
  }
  return v1::LAYOUT_UNSPECIFIED;
}

v1::Algorithm ToProto(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return v1::ALGORITHM_UNSPECIFIED;
    case Algorithm::kNaive:
      return v1::ALGORITHM_NAIVE;
    case Algorithm::kOnlineSoftmax:
      return v1::ALGORITHM_ONLINE_SOFTMAX;
    case Algorithm::kFlashAttention1:
      return v1::ALGORITHM_FLASH_ATTENTION_1;
    case Algorithm::kFlashAttention2:
      return v1::ALGORITHM_FLASH_ATTENTION_2;
  }
  return v1::ALGORITHM_UNSPECIFIED;
}

v1::Plan ToProto(Plan plan) {
  switch (plan) {
    case Plan::kAuto:  // which servers know that are older than plans
      return v1::PLAN_UNSPECIFIED;
    case Plan::kOneDevice:
      return v1::PLAN_ONE_DEVICE;
    case Plan::kHeads:
      return v1::PLAN_HEADS;
    case Plan::kGather:
      return v1::PLAN_GATHER;
    case Plan::kRing:
      return v1::PLAN_RING;
    case Plan::kStriped:
      return v1::PLAN_STRIPED;
    case Plan::kZigzag:
      return v1::PLAN_ZIGZAG;
    case Plan::kKv:
      return v1::PLAN_KV;
  }
  return v1::PLAN_UNSPECIFIED;
}

v1::Priority ToProto(Priority priority) {
  switch (priority) {
    case Priority::kLow:
      return v1::PRIORITY_LOW;
    case Priority::kNormal:
      return v1::PRIORITY_NORMAL;
    case Priority::kHigh:
      return v1::PRIORITY_HIGH;
  }
  return v1::PRIORITY_UNSPECIFIED;
}

// What FillAttention and FillOptions take for granted.
template <typename Call>
absl::Status CheckEnums(const Call& call, const CallOptions& options) {
  absl::Status status =
      CheckEnum("attention.layout", call.attention.layout, Layout::kPacked);
  status.Update(CheckEnum("options.algorithm", call.algorithm,
                          Algorithm::kFlashAttention2));
  status.Update(CheckEnum("options.plan", call.plan, Plan::kKv));
  status.Update(CheckEnum("options.transport", options.transport,
                          TransportKind::kRegion));
  status.Update(
      CheckEnum("options.priority", options.priority, Priority::kHigh));
  return status;
}

void FillAttention(const Attention& from, v1::Attention& to) {
  to.set_layout(ToProto(from.layout));
  if (from.scale.has_value()) to.set_scale(*from.scale);
  if (from.softcap.has_value()) to.set_softcap(*from.softcap);
  v1::Mask& mask = *to.mutable_mask();
  mask.set_causal(from.mask.causal);
  if (from.mask.window_left != -1) {
    mask.set_window_left(from.mask.window_left);
  }
  if (from.mask.window_right != -1) {
    mask.set_window_right(from.mask.window_right);
  }
  to.mutable_q_lens()->Add(from.q_lens.begin(), from.q_lens.end());
  to.mutable_kv_lens()->Add(from.kv_lens.begin(), from.kv_lens.end());
  to.mutable_q_start()->Add(from.q_start.begin(), from.q_start.end());
  to.mutable_kv_start()->Add(from.kv_start.begin(), from.kv_start.end());
  if (from.q_stride != 1) to.set_q_stride(from.q_stride);
  if (from.kv_stride != 1) to.set_kv_stride(from.kv_stride);
}

template <typename Call>
void FillOptions(const Call& call, bool deterministic,
                 const CallOptions& options, v1::ExecutionOptions& to) {
  to.set_algorithm(ToProto(call.algorithm));
  to.set_deterministic(deterministic);
  to.set_plan(ToProto(call.plan));
  to.set_priority(ToProto(options.priority));
}

void Fill(const ForwardCall& call, const CallOptions& options,
          v1::ForwardRequest& request, RequestWriter& writer) {
  FillAttention(call.attention, *request.mutable_attention());
  FillOptions(call, false, options, *request.mutable_options());
  VisitTensors(call, writer);
}

void Fill(const BackwardCall& call, const CallOptions& options,
          v1::BackwardRequest& request, RequestWriter& writer) {
  FillAttention(call.attention, *request.mutable_attention());
  FillOptions(call, call.deterministic, options, *request.mutable_options());
  VisitTensors(call, writer);
}

absl::Status TooLarge(absl::string_view what, int64_t bytes, int64_t limit,
                      absl::string_view limit_name) {
  return wire::FieldError(what, absl::StrCat(bytes, " bytes, over the ", limit,
                                             " of ", limit_name));
}

template <typename Request, typename Call>
absl::StatusOr<Pieces> EncodeUnary(const Call& call, const CallOptions& options,
                                   int64_t max_message_bytes,
                                   const Placement& placement) {
  if (absl::Status known = CheckEnums(call, options); !known.ok()) {
    return known;
  }
  wire::MessageArena arena;
  auto& request = arena.New<Request>();
  UnaryWriter writer(request, placement, max_message_bytes);
  Fill(call, options, request, writer);
  if (!writer.status().ok()) return writer.status();
  absl::StatusOr<Pieces> pieces = wire::Encode(request, writer.data());
  if (!pieces.ok()) return pieces;
  if (const int64_t total = wire::TotalBytes(*pieces);
      total > max_message_bytes) {
    return TooLarge("request", total, max_message_bytes, "max_message_bytes");
  }
  return pieces;
}

// `part` is where in the header the request goes.
template <typename Request, typename Call>
absl::StatusOr<ExchangeParts> EncodeExchange(
    const Call& call, const CallOptions& options, const ExchangeWishes& wishes,
    const Placement& placement, Request* (v1::ExchangeHeader::*part)()) {
  if (absl::Status known = CheckEnums(call, options); !known.ok()) {
    return known;
  }
  wire::MessageArena arena;
  auto& message = arena.New<v1::ExchangeRequest>();
  v1::ExchangeHeader& header = *message.mutable_header();
  header.set_streams(wishes.streams);
  header.set_chunk_bytes(wishes.chunk_bytes);
  Request& request = *(header.*part)();
  ExchangeWriter writer(request, placement);
  Fill(call, options, request, writer);
  if (!writer.status().ok()) return writer.status();

  ExchangeParts parts;
  parts.streams = wishes.streams;
  parts.header.resize(1);
  parts.header[0].owned = message.SerializeAsString();
  if (const int64_t total = wire::TotalBytes(parts.header);
      total > wire::kMaxHeaderBytes) {
    return TooLarge("header", total, wire::kMaxHeaderBytes, "a header");
  }
  parts.inputs = std::move(writer.inputs());
  parts.outputs = Outputs(call, placement);
  for (size_t i = 0; i < parts.outputs.size(); ++i) {
    parts.outputs[i].streamed = writer.outputs()[i].streamed;
    parts.outputs[i].bytes = writer.outputs()[i].bytes;
  }
  return parts;
}

}  // namespace

absl::StatusOr<Pieces> EncodeForward(const ForwardCall& call,
                                     const CallOptions& options,
                                     int64_t max_message_bytes,
                                     const Placement& placement) {
  return EncodeUnary<v1::ForwardRequest>(call, options, max_message_bytes,
                                         placement);
}

absl::StatusOr<Pieces> EncodeBackward(const BackwardCall& call,
                                      const CallOptions& options,
                                      int64_t max_message_bytes,
                                      const Placement& placement) {
  return EncodeUnary<v1::BackwardRequest>(call, options, max_message_bytes,
                                          placement);
}

absl::StatusOr<ExchangeParts> EncodeForwardExchange(
    const ForwardCall& call, const CallOptions& options,
    const ExchangeWishes& wishes, const Placement& placement) {
  return EncodeExchange(call, options, wishes, placement,
                        &v1::ExchangeHeader::mutable_forward);
}

absl::StatusOr<ExchangeParts> EncodeBackwardExchange(
    const BackwardCall& call, const CallOptions& options,
    const ExchangeWishes& wishes, const Placement& placement) {
  return EncodeExchange(call, options, wishes, placement,
                        &v1::ExchangeHeader::mutable_backward);
}

Pieces EncodeGetServerInfo() { return Pieces(); }

Pieces EncodeHealthCheck(absl::string_view service) {
  // HealthCheckRequest { string service = 1; }, by hand: linking its
  // descriptor would collide with an application's own.
  Pieces pieces(1);
  google::protobuf::io::StringOutputStream stream(&pieces[0].owned);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.WriteTag(1 << 3 | 2);
  out.WriteVarint32(static_cast<uint32_t>(service.size()));
  out.WriteRaw(service.data(), static_cast<int>(service.size()));
  return pieces;
}

}  // namespace attnd::client
