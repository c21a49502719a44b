#include "client/attnctl/tensors.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/attnctl/npy.h"
#include "client/element.h"
#include "client/tensor_size.h"
#include "proto/wire/codec.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

HostTensor Convert(HostTensor tensor, DType dtype) {
  if (tensor.dtype == dtype) return tensor;
  HostTensor result{dtype, tensor.shape, {}};
  result.data.resize(tensor.elements() * SizeOf(dtype));
  for (size_t i = 0; i < tensor.elements(); ++i) {
    StoreElement(dtype, LoadElement(tensor.dtype, tensor.data.data(), i),
                 result.data.data(), i);
  }
  return result;
}

absl::StatusOr<HostTensor> FromArray(const std::string& path, NpyArray array,
                                     std::optional<DType> dtype) {
  HostTensor tensor{DType::kF32, std::move(array.shape), std::move(array.data)};
  switch (array.type) {
    case NpyType::kF32:
      break;
    case NpyType::kF16:
      tensor.dtype = DType::kF16;
      break;
    case NpyType::kBits16:
      if (dtype != DType::kBF16) {
        return absl::InvalidArgumentError(absl::StrCat(
            path,
            ": 16 bits of no floating-point type; --dtype=bf16 reads "
            "them as bfloat16"));
      }
      tensor.dtype = DType::kBF16;
      break;
    case NpyType::kI64:
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": int64 where floating point is needed"));
  }
  const DType to = dtype.value_or(tensor.dtype);
  return Convert(std::move(tensor), to);
}

}  // namespace

double HostTensor::at(size_t index) const {
  return LoadElement(dtype, data.data(), index);
}

HostTensor PoisonedTensor(DType dtype, const std::vector<int64_t>& shape) {
  HostTensor tensor{dtype, shape, {}};
  const absl::StatusOr<int64_t> bytes = TensorBytes("output", dtype, shape);
  // What no message can hold is left for the call to refuse. All ones is a
  // NaN in every type.
  if (bytes.ok() && *bytes <= wire::kMaxMessageBytes)
    tensor.data.assign(*bytes, '\xff');
  return tensor;
}

absl::StatusOr<HostTensor> LoadTensor(const std::string& path,
                                      std::optional<DType> dtype) {
  absl::StatusOr<NpyArray> array = ReadNpy(path);
  if (!array.ok()) return array.status();
  return FromArray(path, *std::move(array), dtype);
}

absl::StatusOr<HostTensor> LoadTensorOrF32(const std::string& path,
                                           DType dtype) {
  absl::StatusOr<NpyArray> array = ReadNpy(path);
  if (!array.ok()) return array.status();
  if (array->type == NpyType::kF32) dtype = DType::kF32;
  return FromArray(path, *std::move(array), dtype);
}

absl::Status SaveTensor(const std::string& path, const HostTensor& tensor) {
  const NpyType type = tensor.dtype == DType::kF32   ? NpyType::kF32
                       : tensor.dtype == DType::kF16 ? NpyType::kF16
                                                     : NpyType::kBits16;
  return WriteNpy(path, type, tensor.shape, tensor.data.data());
}

absl::StatusOr<std::vector<int64_t>> LoadIntegers(const std::string& flag,
                                                  const std::string& value) {
  std::vector<int64_t> values;
  if (value.empty()) return values;
  if (absl::EndsWith(value, ".npy")) {
    const absl::StatusOr<NpyArray> array = ReadNpy(value);
    if (!array.ok()) return array.status();
    if (array->type != NpyType::kI64 || array->shape.size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(value, ": a one-dimensional int64 array is needed"));
    }
    values.resize(array->shape[0]);
    if (!values.empty()) {
      std::memcpy(values.data(), array->data.data(), array->data.size());
    }
    return values;
  }
  for (const absl::string_view part : absl::StrSplit(value, ',')) {
    if (!absl::SimpleAtoi(part, &values.emplace_back())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", flag, ": '", wire::Echo(part), "' is not an integer"));
    }
  }
  return values;
}

absl::StatusOr<Difference> Compare(const HostTensor& actual,
                                   const HostTensor& expected) {
  if (actual.shape != expected.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat("the result is ", ShapeText(actual.shape),
                     ", what is expected ", ShapeText(expected.shape)));
  }
  Difference difference;
  double squares = 0;
  for (size_t i = 0; i < actual.elements(); ++i) {
    const double a = actual.at(i), e = expected.at(i);
    if (std::isfinite(e)) {
      difference.scale = std::max(difference.scale, std::fabs(e));
    }
    double distance = a == e ? 0 : std::fabs(a - e);
    if (std::isnan(distance)) {
      distance = std::numeric_limits<double>::infinity();
    }
    squares += distance * distance;
    if (distance > difference.max) {
      difference.max = distance;
      difference.worst_index = i;
    }
  }
  if (actual.elements() > 0) {
    difference.rms = std::sqrt(squares / actual.elements());
  }
  return difference;
}

}  // namespace attnd::client
