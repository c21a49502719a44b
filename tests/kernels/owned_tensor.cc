#include "tests/kernels/owned_tensor.h"

#include <algorithm>

#include "kernels/dtype.h"

namespace attnd::testing {
namespace {

constexpr uint8_t kPoison = 0xff;  // NaN in each of the types

}  // namespace

OwnedTensor::OwnedTensor(DType dtype, int64_t batch, int64_t tokens,
                         int64_t heads, int64_t dim, bool heads_first,
                         int64_t gap)
    : dtype_(dtype),
      batch_(batch),
      tokens_(tokens),
      heads_(heads),
      dim_(dim),
      first_(gap) {
  const int64_t row = dim + gap;
  if (heads_first) {
    token_stride_ = row;
    head_stride_ = tokens * row;
    batch_stride_ = heads * head_stride_;
  } else {
    head_stride_ = row;
    token_stride_ = heads * row;
    batch_stride_ = tokens * token_stride_;
  }
  bytes_.assign(
      (first_ + std::max<int64_t>(1, batch * batch_stride_)) * SizeOf(dtype),
      kPoison);
}

TensorView OwnedTensor::view() {
  TensorView v;
  v.dtype = dtype_;
  if (bytes_.empty()) return v;
  v.data = bytes_.data() + first_ * SizeOf(dtype_);
  v.batch_stride = batch_stride_;
  v.token_stride = token_stride_;
  v.head_stride = head_stride_;
  return v;
}

ConstTensorView OwnedTensor::view() const {
  const TensorView v = const_cast<OwnedTensor*>(this)->view();
  return {v.data, v.dtype, v.batch_stride, v.token_stride, v.head_stride};
}

int64_t OwnedTensor::Offset(int64_t b, int64_t t, int64_t h) const {
  return first_ + b * batch_stride_ + t * token_stride_ + h * head_stride_;
}

double OwnedTensor::Get(int64_t b, int64_t t, int64_t h, int64_t d) const {
  return LoadElement(bytes_.data(), dtype_, Offset(b, t, h) + d);
}

void OwnedTensor::Set(int64_t b, int64_t t, int64_t h, int64_t d,
                      double value) {
  StoreElement(bytes_.data(), dtype_, Offset(b, t, h) + d, value);
}

void OwnedTensor::Poison() { std::fill(bytes_.begin(), bytes_.end(), kPoison); }

bool OwnedTensor::GapsIntact() const {
  std::vector<uint8_t> rest = bytes();
  const int64_t size = SizeOf(dtype_);
  for (int64_t b = 0; b < batch_; ++b)
    for (int64_t t = 0; t < tokens_; ++t)
      for (int64_t h = 0; h < heads_; ++h)
        std::fill_n(rest.begin() + Offset(b, t, h) * size, dim_ * size,
                    kPoison);
  return std::all_of(rest.begin(), rest.end(),
                     [](uint8_t byte) { return byte == kPoison; });
}

std::vector<double> OwnedTensor::Values() const {
  std::vector<double> values;
  values.reserve(batch_ * tokens_ * heads_ * dim_);
  for (int64_t b = 0; b < batch_; ++b)
    for (int64_t t = 0; t < tokens_; ++t)
      for (int64_t h = 0; h < heads_; ++h)
        for (int64_t d = 0; d < dim_; ++d) values.push_back(Get(b, t, h, d));
  return values;
}

RowView OwnedRows::view() {
  const TensorView v = tensor_.view();
  return {static_cast<float*>(v.data), v.batch_stride, v.head_stride};
}

ConstRowView OwnedRows::view() const {
  const ConstTensorView v = tensor_.view();
  return {static_cast<const float*>(v.data), v.batch_stride, v.head_stride};
}

}  // namespace attnd::testing
