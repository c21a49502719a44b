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

namespace attnd::server {
namespace {

namespace pb = ::attn::v1;

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
}

// An output but for its bytes.
void FillHeader(const Request::Tensor& output, pb::Tensor& to) {
  to.set_dtype(ToProto(output.spec.dtype));
  to.mutable_shape()->Add(output.spec.shape.begin(), output.spec.shape.end());
}

// The most that a report takes in its response. Its texts are a device's name,
// which CUDA limits to 256 bytes, and a kernel's.
constexpr int64_t kReportBytes = 512;
// More than what an output takes beside its bytes, at most four sizes and two
// lengths.
constexpr int64_t kOutputHeaderBytes = 128;

// What a field of a number below 16 takes with `bytes` in it.
int64_t FieldBytes(int64_t bytes) {
  return 1 + google::protobuf::io::CodedOutputStream::VarintSize64(bytes) +
         bytes;
}

// The outputs that were wanted, into a response of either kind, and their bytes
// into `data`.
void AddResults(const Request& request, const WorkResult& result,
                absl::Span<const TensorField> fields, wire::Fields response,
                std::vector<wire::TensorData>& data) {
  for (const auto& [number, id] : fields) {
    const Request::Tensor& output = request.output(id);
    if (!output.present) continue;
    FillHeader(output, response.Mutable<pb::Tensor>(number));
    const HostSpan bytes = result.outputs[id].span();
    wire::TensorData& entry = data.emplace_back();
    entry.field = number;
    entry.pieces.emplace_back(reinterpret_cast<const char*>(bytes.data()),
                              bytes.size());
  }
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
                               int64_t max_message_bytes) {
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
    pb::Tensor header;
    FillHeader(output, header);
    bytes += FieldBytes(header.ByteSizeLong() + FieldBytes(output.bytes));
    absl::StrAppend(&parts, parts.empty() ? "" : ", ", TensorName(id), " ",
                    output.bytes);
    if (output.bytes > request.output(largest).bytes) largest = id;
  }
  if (bytes <= max_message_bytes) return absl::OkStatus();
  return FieldError(
      TensorName(largest),
      absl::StrCat("the response takes ", bytes, " bytes (", parts,
                   "), more than the largest message of ", max_message_bytes));
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
