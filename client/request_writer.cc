#include "client/request_writer.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "client/tensor_size.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;

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

void Fill(const RegionPlace& place, v1::RegionSlice& slice) {
  slice.set_region(place.region->id());
  slice.set_offset(place.offset);
}

}  // namespace

void RequestWriter::Input(int field, const ConstTensor& tensor) {
  if (!status_.ok() || tensor.shape.empty()) return;
  const int64_t bytes = Bytes(field, tensor.dtype, tensor.shape);
  const RegionPlace* place = placement_.Find(field);
  if (place == nullptr) {
    Count(field, tensor.shape, tensor.data, bytes, "request", sent_bytes_);
  }
  if (!status_.ok()) return;
  auto& to = fields_.Mutable<v1::Tensor>(field);
  to.set_dtype(ToProto(tensor.dtype));
  to.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  if (place != nullptr) return Fill(*place, *to.mutable_region());
  Place(field, absl::string_view(static_cast<const char*>(tensor.data),
                                 static_cast<size_t>(bytes)));
}

void RequestWriter::Wanted(int field, const Tensor& tensor,
                           const Shape& expected) {
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
  to.set_want(true);
  to.set_dtype(ToProto(tensor.dtype));
  if (const RegionPlace* place = placement_.Find(field)) {
    Fill(*place, *to.mutable_region());
    outputs_.push_back({false, bytes});
    return;
  }
  Count(field, tensor.shape, tensor.data, bytes, "response", received_bytes_);
  if (!status_.ok()) return;
  const bool streamed = PlaceOutput(field, bytes);
  outputs_.push_back({streamed, bytes});
}

int64_t RequestWriter::Bytes(int field, DType dtype, const Shape& shape) {
  const absl::StatusOr<int64_t> bytes = TensorBytes(Name(field), dtype, shape);
  status_.Update(bytes.status());
  return bytes.value_or(0);
}

void RequestWriter::Count(int field, const Shape& shape, const void* data,
                          int64_t bytes, const char* message, int64_t& total) {
  if (!status_.ok()) return;
  if (bytes > max_bytes_ - total) {
    status_ = wire::FieldError(
        Name(field),
        absl::StrCat(ShapeText(shape), " makes the ", message, " larger than ",
                     limit_name_, " (", max_bytes_, ")"));
  } else if (bytes > 0 && data == nullptr) {
    status_ = wire::FieldError(absl::StrCat(Name(field), ".data"), "null");
  }
  total += bytes;
}

void UnaryWriter::Place(int field, absl::string_view bytes) {
  wire::TensorData& data = data_.emplace_back();
  data.field = field;
  data.pieces.push_back(bytes);
}

void ExchangeWriter::Place(int field, absl::string_view bytes) {
  auto& tensor = fields().Mutable<v1::Tensor>(field);
  if (IsInline(bytes.size(), header_room_)) {
    tensor.set_data(bytes.data(), bytes.size());
    return;
  }
  tensor.mutable_streamed();
  inputs_.push_back({field, bytes});
}

bool ExchangeWriter::PlaceOutput(int field, int64_t bytes) {
  if (IsInline(bytes, response_room_)) return false;
  fields().Mutable<v1::OutputSpec>(field).mutable_streamed();
  return true;
}

bool ExchangeWriter::IsInline(int64_t bytes, int64_t& room) {
  if (bytes >= kInlineTensorBytes || bytes > room) return false;
  room -= bytes;
  return true;
}

}  // namespace attnd::client
