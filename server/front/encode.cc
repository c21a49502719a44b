#include "server/front/encode.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "attn/v1/attention.pb.h"
#include "base/field_error.h"
#include "google/protobuf/io/coded_stream.h"
#include "proto/wire/fields.h"
#include "proto/wire/message_arena.h"
#include "server/front/proto_enums.h"
#include "server/front/tensor_fields.h"
#include "server/scheduling/call_refusal.h"

namespace attnd::server {
namespace {

namespace pb = ::attn::v1;

// A reason is a sentence. What is longer than this is cut.
constexpr size_t kMostWhyBytes = 512;

void FillPlan(const PlanReport& plan, pb::PlanReport& to) {
  to.set_plan(ToProto(plan.kind));
  to.set_why(plan.why.substr(0, kMostWhyBytes));
  for (const PlanReport::Device& device : plan.devices) {
    pb::PlanDevice& entry = *to.add_devices();
    entry.set_device(device.name);
    entry.set_busy_ns(absl::ToInt64Nanoseconds(device.busy));
  }
  to.set_predicted_ns(absl::ToInt64Nanoseconds(plan.predicted));
}

void FillReport(const Request& request, const WorkResult& result,
                pb::ExecutionReport& report) {
  report.set_device(result.device);
  report.set_algorithm(ToProto(result.kernel.algorithm));
  report.set_kernel(result.kernel.name);
  report.set_batch_requests(result.batch_requests);
  report.set_flops(request.flops());
  auto& phases = *report.mutable_phases();
  phases.set_queue_ns(absl::ToInt64Nanoseconds(result.phases.queue));
  phases.set_upload_ns(absl::ToInt64Nanoseconds(result.phases.upload));
  phases.set_compute_ns(absl::ToInt64Nanoseconds(result.phases.compute));
  phases.set_download_ns(absl::ToInt64Nanoseconds(result.phases.download));
  phases.set_receive_ns(absl::ToInt64Nanoseconds(result.phases.receive));
  if (result.plan.has_value()) FillPlan(*result.plan, *report.mutable_plan());
}

// An output but for its bytes.
void FillHeader(const Request::Tensor& output, pb::Tensor& to) {
  to.set_dtype(ToProto(output.spec.dtype));
  to.mutable_shape()->Add(output.spec.shape.begin(), output.spec.shape.end());
}

// The most that a report takes in its response: 512 bytes, as its texts are a
// device's name, which CUDA limits to 256, and a kernel's; and a plan's, with
// its reason and 24 bytes for each of at most 64 devices, as "cuda:63".
constexpr int64_t kReportBytes = 512 + kMostWhyBytes + int64_t{64} * 24;
// More than what an output takes beside its bytes, at most four sizes and two
// lengths.
constexpr int64_t kOutputHeaderBytes = 128;

// What a field of a number below 16 takes with `bytes` in it.
int64_t FieldBytes(int64_t bytes) {
  return 1 + google::protobuf::io::CodedOutputStream::VarintSize64(bytes) +
         bytes;
}

// Where a result is that was written to a region.
void FillSlice(const ResultPlace& place, pb::Tensor& to) {
  to.mutable_region()->set_region(place.region);
  to.mutable_region()->set_offset(place.offset);
}

// The outputs that were wanted, into a response of either kind, and the bytes
// of those in no region into `data`.
void AddResults(const Request& request, const WorkResult& result,
                absl::Span<const TensorField> fields, wire::Fields response,
                std::vector<wire::TensorData>& data) {
  for (const auto& [number, id] : fields) {
    const Request::Tensor& output = request.output(id);
    if (!output.present) continue;
    auto& tensor = response.Mutable<pb::Tensor>(number);
    FillHeader(output, tensor);
    if (const ResultPlace* place = result.PlaceOf(id); place != nullptr) {
      FillSlice(*place, tensor);
      continue;
    }
    const HostSpan bytes = result.outputs[id].span();
    wire::TensorData& entry = data.emplace_back();
    entry.field = number;
    entry.pieces.emplace_back(reinterpret_cast<const char*>(bytes.data()),
                              bytes.size());
  }
}

// As AddResults, with the bytes of what is not streamed, or in a region, in the
// response itself.
void AddInlineResults(const TransferResult& from,
                      absl::Span<const TensorField> fields,
                      wire::Fields response) {
  for (const auto& [number, id] : fields) {
    const Request::Tensor& output = from.request->output(id);
    if (!output.present) continue;
    auto& tensor = response.Mutable<pb::Tensor>(number);
    FillHeader(output, tensor);
    if (from.streamed.outputs[id]) {
      tensor.mutable_streamed();
      continue;
    }
    if (const ResultPlace* place = from.result->PlaceOf(id); place != nullptr) {
      FillSlice(*place, tensor);
      continue;
    }
    const HostSpan bytes = from.result->outputs[id].span();
    tensor.set_data(bytes.data(), bytes.size());
  }
}

// Neither fails: messages without data, or with a chunk of it, are short.
std::vector<wire::Piece> EncodePart(const pb::ExchangeResponse& response,
                                    absl::Span<const wire::TensorData> data) {
  return *wire::Encode(response, data);
}

// The number of `id` among `fields`, which has it.
int NumberOf(absl::Span<const TensorField> fields, TensorId id) {
  for (const TensorField& field : fields) {
    if (field.id == id) return field.number;
  }
  return 0;
}

// A result's number in its response: no two operations share a result.
int ResultNumber(TensorId id) {
  const int number = NumberOf(kForwardResults, id);
  return number != 0 ? number : NumberOf(kBackwardResults, id);
}

template <typename Response>
absl::StatusOr<std::vector<wire::Piece>> EncodeResponse(
    const Request& request, const WorkResult& result,
    absl::Span<const TensorField> fields) {
  wire::MessageArena arena;
  auto& response = arena.New<Response>();
  std::vector<wire::TensorData> data;
  data.reserve(fields.size());
  AddResults(request, result, fields, wire::Fields(response), data);
  FillReport(request, result, *response.mutable_report());
  return wire::Encode(response, data);
}

}  // namespace

absl::Status CheckResponseFits(const Request& request,
                               int64_t max_message_bytes,
                               const PerTensor<RegionBytes>& placed) {
  constexpr TensorId kOutputs[] = {TensorId::kO, TensorId::kLse, TensorId::kDQ,
                                   TensorId::kDK, TensorId::kDV};
  int64_t bytes = kReportBytes;
  // Nearly all are far below; they need no exact count.
  if (request.output_bytes() <=
      max_message_bytes - bytes - 3 * kOutputHeaderBytes) {
    return absl::OkStatus();
  }
  std::string parts;
  TensorId largest = TensorId::kO;
  for (TensorId id : kOutputs) {
    const Request::Tensor& output = request.output(id);
    if (!output.present) continue;
    if (placed[id].region != nullptr) {
      bytes += kOutputHeaderBytes;
      continue;
    }
    pb::Tensor header;
    FillHeader(output, header);
    bytes += FieldBytes(header.ByteSizeLong() + FieldBytes(output.bytes));
    absl::StrAppend(&parts, parts.empty() ? "" : ", ", TensorName(id), " ",
                    output.bytes);
    if (output.bytes > request.output(largest).bytes) largest = id;
  }
  if (bytes <= max_message_bytes) return absl::OkStatus();
  return Refused(
      CallRefusal::kTooLarge,
      FieldError(TensorName(largest),
                 absl::StrCat("the response takes ", bytes, " bytes (", parts,
                              "), more than the largest message of ",
                              max_message_bytes)));
}

absl::Status CheckInlineFits(const Request& request,
                             const PerTensor<bool>& streamed,
                             const PerTensor<RegionBytes>& placed) {
  int64_t bytes = kReportBytes;
  for (const TensorField& field : ResultFields(request.spec().op)) {
    const Request::Tensor& output = request.output(field.id);
    if (!output.present || streamed[field.id]) continue;
    if (placed[field.id].region != nullptr) continue;
    bytes += output.bytes + kOutputHeaderBytes;
    if (bytes <= wire::kMaxHeaderBytes) continue;
    return FieldError(TensorName(field.id),
                      absl::StrCat("has ", output.bytes,
                                   " bytes and is not streamed: the "
                                   "response of an Exchange has at most ",
                                   wire::kMaxHeaderBytes));
  }
  return absl::OkStatus();
}

std::vector<wire::Piece> EncodeAdmitted(const std::string& token, int streams,
                                        int64_t chunk_bytes) {
  pb::ExchangeResponse response;
  pb::Admitted& admitted = *response.mutable_admitted();
  admitted.set_transfer(token);
  admitted.set_streams(streams);
  admitted.set_chunk_bytes(chunk_bytes);
  return EncodePart(response, {});
}

std::vector<wire::Piece> EncodeMissing(Op op,
                                       const std::vector<TensorRange>& ranges) {
  pb::ExchangeResponse response;
  for (const TensorRange& range : ranges) {
    auto& to = *response.mutable_missing()->add_ranges();
    to.set_tensor(NumberOf(InputFields(op), range.tensor));
    to.set_offset(range.range.offset);
    to.set_bytes(range.range.bytes);
  }
  return EncodePart(response, {});
}

std::vector<wire::Piece> EncodeChunk(TensorId tensor, int64_t offset,
                                     ConstHostSpan bytes) {
  pb::ExchangeResponse response;
  response.mutable_chunk()->set_tensor(ResultNumber(tensor));
  response.mutable_chunk()->set_offset(offset);
  wire::TensorData data;
  data.field = pb::ExchangeResponse::kChunkFieldNumber;
  data.pieces.emplace_back(reinterpret_cast<const char*>(bytes.data()),
                           bytes.size());
  return EncodePart(response, absl::MakeConstSpan(&data, 1));
}

std::vector<wire::Piece> EncodeTransferResult(const TransferResult& result) {
  pb::ExchangeResponse response;
  if (result.request->spec().op == Op::kForward) {
    pb::ForwardResponse& forward = *response.mutable_forward();
    AddInlineResults(result, kForwardResults, wire::Fields(forward));
    FillReport(*result.request, *result.result, *forward.mutable_report());
  } else {
    pb::BackwardResponse& backward = *response.mutable_backward();
    AddInlineResults(result, kBackwardResults, wire::Fields(backward));
    FillReport(*result.request, *result.result, *backward.mutable_report());
  }
  return EncodePart(response, {});
}

absl::StatusOr<std::vector<wire::Piece>> EncodeResult(
    const Request& request, const WorkResult& result) {
  return request.spec().op == Op::kForward
             ? EncodeResponse<pb::ForwardResponse>(request, result,
                                                   kForwardResults)
             : EncodeResponse<pb::BackwardResponse>(request, result,
                                                    kBackwardResults);
}

}  // namespace attnd::server
