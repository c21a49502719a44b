#include "server/front/encode.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "attn/v1/attention.pb.h"
#include "base/field_error.h"
#include "google/protobuf/io/coded_stream.h"
#include "proto/wire/message_arena.h"
#include "server/front/proto_enums.h"

namespace attnd::server {
namespace {

namespace pb = ::attn::v1;

template <typename Report>
void FillReport(const Request& request, const WorkResult& result,
                Report& report) {
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
  for (int64_t size : output.spec.shape) to.add_shape(size);
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

// Output `id`, if it was wanted, into `tensor()` and `data`.
template <typename MutableTensor>
void AddResult(int number, TensorId id, const Request& request,
               const WorkResult& result, MutableTensor tensor,
               std::vector<wire::TensorData>& data) {
  const Request::Tensor& output = request.output(id);
  if (!output.present) return;
  FillHeader(output, *tensor());
  const HostSpan bytes = result.outputs[id].span();
  wire::TensorData entry;
  entry.field = number;
  entry.pieces.emplace_back(reinterpret_cast<const char*>(bytes.data()),
                            bytes.size());
  data.push_back(std::move(entry));
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
  std::vector<wire::TensorData> data;
  wire::MessageArena arena;
  if (request.spec().op == Op::kForward) {
    auto& m = arena.New<pb::ForwardResponse>();
    AddResult(
        pb::ForwardResponse::kOFieldNumber, TensorId::kO, request, result,
        [&] { return m.mutable_o(); }, data);
    AddResult(
        pb::ForwardResponse::kLseFieldNumber, TensorId::kLse, request, result,
        [&] { return m.mutable_lse(); }, data);
    FillReport(request, result, *m.mutable_report());
    return wire::Encode(m, data);
  }
  auto& m = arena.New<pb::BackwardResponse>();
  AddResult(
      pb::BackwardResponse::kDqFieldNumber, TensorId::kDQ, request, result,
      [&] { return m.mutable_dq(); }, data);
  AddResult(
      pb::BackwardResponse::kDkFieldNumber, TensorId::kDK, request, result,
      [&] { return m.mutable_dk(); }, data);
  AddResult(
      pb::BackwardResponse::kDvFieldNumber, TensorId::kDV, request, result,
      [&] { return m.mutable_dv(); }, data);
  FillReport(request, result, *m.mutable_report());
  return wire::Encode(m, data);
}

}  // namespace attnd::server
