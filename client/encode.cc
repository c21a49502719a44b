#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "client/check_enum.h"
#include "client/messages.h"
#include "client/tensor_size.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/message.h"
#include "proto/wire/fields.h"
#include "proto/wire/message_arena.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;
using Shape = std::vector<int64_t>;

v1::DataType ToProto(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return v1::DATA_TYPE_F32;
    case DType::kF16:
      return v1::DATA_TYPE_F16;
    case DType::kBF16:
      return v1::DATA_TYPE_BF16;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

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
absl::Status CheckEnums(const Attention& attention, Algorithm algorithm,
                        const CallOptions& options) {
  absl::Status status =
      CheckEnum("attention.layout", attention.layout, Layout::kPacked);
  status.Update(
      CheckEnum("options.algorithm", algorithm, Algorithm::kFlashAttention2));
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

void FillOptions(Algorithm algorithm, bool deterministic,
                 const CallOptions& options, v1::ExecutionOptions& to) {
  to.set_algorithm(ToProto(algorithm));
  to.set_deterministic(deterministic);
  to.set_priority(ToProto(options.priority));
}

// Fills a request's tensor and output fields, by their numbers, and keeps the
// first thing wrong with them; names come from the schema.
class RequestWriter {
 public:
  RequestWriter(google::protobuf::Message& request, int64_t max_message_bytes)
      : request_(request),
        fields_(request),
        max_message_bytes_(max_message_bytes) {}

  void Input(int field, const ConstTensor& tensor) {
    if (!status_.ok() || tensor.shape.empty()) return;
    const int64_t bytes = Bytes(field, tensor.dtype, tensor.shape);
    Count(field, tensor.shape, tensor.data, bytes, "request", sent_bytes_);
    if (!status_.ok()) return;
    auto& to = fields_.Mutable<v1::Tensor>(field);
    to.set_dtype(ToProto(tensor.dtype));
    to.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    wire::TensorData& data = data_.emplace_back();
    data.field = field;
    data.pieces.push_back(absl::string_view(
        static_cast<const char*>(tensor.data), static_cast<size_t>(bytes)));
  }

  // `expected`: the shape that the inputs give it; empty: unknown.
  void Wanted(int field, const Tensor& tensor, const Shape& expected) {
    if (!status_.ok()) return;
    auto& to = fields_.Mutable<v1::OutputSpec>(field);
    if (tensor.shape.empty()) return to.set_want(false);
    const int64_t bytes = Bytes(field, tensor.dtype, tensor.shape);
    if (!status_.ok()) return;
    if (!expected.empty() && tensor.shape != expected) {
      status_ = wire::FieldError(
          absl::StrCat(Name(field), ".shape"),
          absl::StrCat(ShapeText(tensor.shape), " where the inputs give ",
                       ShapeText(expected)));
      return;
    }
    Count(field, tensor.shape, tensor.data, bytes, "response", received_bytes_);
    to.set_want(true);
    to.set_dtype(ToProto(tensor.dtype));
  }

  absl::StatusOr<Pieces> Finish() {
    if (!status_.ok()) return status_;
    absl::StatusOr<Pieces> pieces = wire::Encode(request_, data_);
    if (!pieces.ok()) return pieces;
    int64_t total = 0;
    for (const wire::Piece& piece : *pieces) {
      total += piece.owned.size() + piece.borrowed.size();
    }
    if (total > max_message_bytes_) {
      return wire::FieldError(
          "request", absl::StrCat(total, " bytes, over the ",
                                  max_message_bytes_, " of max_message_bytes"));
    }
    return pieces;
  }

 private:
  const std::string& Name(int field) const { return fields_.Name(field); }

  int64_t Bytes(int field, DType dtype, const Shape& shape) {
    const absl::StatusOr<int64_t> bytes =
        TensorBytes(Name(field), dtype, shape);
    status_.Update(bytes.status());
    return bytes.value_or(0);
  }

  // Adds to `total`, the bytes of the tensors in one message.
  void Count(int field, const Shape& shape, const void* data, int64_t bytes,
             const char* message, int64_t& total) {
    if (!status_.ok()) return;
    if (bytes > max_message_bytes_ - total) {
      status_ = wire::FieldError(
          Name(field), absl::StrCat(ShapeText(shape), " makes the ", message,
                                    " larger than max_message_bytes (",
                                    max_message_bytes_, ")"));
    } else if (bytes > 0 && data == nullptr) {
      status_ = wire::FieldError(absl::StrCat(Name(field), ".data"), "null");
    }
    total += bytes;
  }

  const google::protobuf::Message& request_;
  wire::Fields fields_;
  const int64_t max_message_bytes_;
  int64_t sent_bytes_ = 0;
  int64_t received_bytes_ = 0;
  std::vector<wire::TensorData> data_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Pieces> EncodeForward(const ForwardCall& call,
                                     const CallOptions& options,
                                     int64_t max_message_bytes) {
  using Request = v1::ForwardRequest;
  if (absl::Status known = CheckEnums(call.attention, call.algorithm, options);
      !known.ok()) {
    return known;
  }
  wire::MessageArena arena;
  auto& request = arena.New<Request>();
  FillAttention(call.attention, *request.mutable_attention());
  FillOptions(call.algorithm, false, options, *request.mutable_options());
  RequestWriter writer(request, max_message_bytes);
  writer.Input(Request::kQFieldNumber, call.q);
  writer.Input(Request::kKFieldNumber, call.k);
  writer.Input(Request::kVFieldNumber, call.v);
  writer.Input(Request::kBiasFieldNumber, call.bias);
  writer.Wanted(Request::kOFieldNumber, call.o, OutputShape(call.q, call.v));
  writer.Wanted(Request::kLseFieldNumber, call.lse,
                LseShape(call.q, call.attention.layout));
  return writer.Finish();
}

absl::StatusOr<Pieces> EncodeBackward(const BackwardCall& call,
                                      const CallOptions& options,
                                      int64_t max_message_bytes) {
  using Request = v1::BackwardRequest;
  if (absl::Status known = CheckEnums(call.attention, call.algorithm, options);
      !known.ok()) {
    return known;
  }
  wire::MessageArena arena;
  auto& request = arena.New<Request>();
  FillAttention(call.attention, *request.mutable_attention());
  FillOptions(call.algorithm, call.deterministic, options,
              *request.mutable_options());
  RequestWriter writer(request, max_message_bytes);
  writer.Input(Request::kQFieldNumber, call.q);
  writer.Input(Request::kKFieldNumber, call.k);
  writer.Input(Request::kVFieldNumber, call.v);
  writer.Input(Request::kBiasFieldNumber, call.bias);
  writer.Input(Request::kDOFieldNumber, call.d_o);
  writer.Input(Request::kLseFieldNumber, call.lse);
  writer.Input(Request::kOFieldNumber, call.o);
  writer.Input(Request::kDeltaFieldNumber, call.delta);
  writer.Input(Request::kDLseFieldNumber, call.d_lse);
  writer.Wanted(Request::kDqFieldNumber, call.dq, call.q.shape);
  writer.Wanted(Request::kDkFieldNumber, call.dk, call.k.shape);
  writer.Wanted(Request::kDvFieldNumber, call.dv, call.v.shape);
  return writer.Finish();
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
