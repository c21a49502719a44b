#include "attnd/merge.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/float16.h"
#include "client/check_enum.h"
#include "client/element.h"
#include "client/tensor_size.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

using Shape = std::vector<int64_t>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

absl::Status CheckTensor(const std::string& field, DType dtype,
                         const Shape& shape, const void* data,
                         const Shape& expected) {
  if (shape != expected) {
    return wire::FieldError(
        absl::StrCat(field, ".shape"),
        absl::StrCat(ShapeText(shape), ", not ", ShapeText(expected)));
  }
  const absl::StatusOr<int64_t> bytes = TensorBytes(field, dtype, shape);
  if (!bytes.ok()) return bytes.status();
  if (*bytes > 0 && data == nullptr) {
    return wire::FieldError(absl::StrCat(field, ".data"), "null");
  }
  return absl::OkStatus();
}

absl::Status CheckLse(const std::string& field, DType dtype, const Shape& shape,
                      const void* data, const Shape& expected) {
  if (dtype != DType::kF32) {
    return wire::FieldError(absl::StrCat(field, ".dtype"), "not f32");
  }
  return CheckTensor(field, dtype, shape, data, expected);
}

absl::Status Check(absl::Span<const Partial> partials, Layout layout,
                   const Tensor& o, const Tensor& lse) {
  absl::Status status = CheckEnum("layout", layout, Layout::kPacked);
  if (!status.ok()) return status;
  // LSE's shape depends on O's as it does on Q's.
  const Shape lse_shape = LseShape({o.dtype, o.shape, nullptr}, layout);
  if (lse_shape.empty()) {
    return wire::FieldError("o.shape",
                            absl::StrCat(ShapeText(o.shape),
                                         " has another rank than its "
                                         "layout"));
  }
  status.Update(CheckTensor("o", o.dtype, o.shape, o.data, o.shape));
  if (!lse.shape.empty()) {
    status.Update(CheckLse("lse", lse.dtype, lse.shape, lse.data, lse_shape));
  }
  for (size_t i = 0; i < partials.size(); ++i) {
    const std::string name = absl::StrCat("partials[", i, "]");
    const auto& [po, plse] = partials[i];
    status.Update(CheckTensor(absl::StrCat(name, ".o"), po.dtype, po.shape,
                              po.data, o.shape));
    status.Update(CheckLse(absl::StrCat(name, ".lse"), plse.dtype, plse.shape,
                           plse.data, lse_shape));
  }
  return status;
}

// sum += weight * row, where `row` is the elements from `first` on.
void AddRow(const ConstTensor& tensor, int64_t first, double weight,
            std::vector<double>& sum) {
  if (tensor.dtype == DType::kF32) {
    const float* row = static_cast<const float*>(tensor.data) + first;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * row[i];
    return;
  }
  const uint16_t* row = static_cast<const uint16_t*>(tensor.data) + first;
  const auto widen = tensor.dtype == DType::kF16 ? F16ToFloat : BF16ToFloat;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * widen(row[i]);
}

void StoreRow(const std::vector<double>& sum, int64_t first, const Tensor& to) {
  if (to.dtype == DType::kF32) {
    float* row = static_cast<float*>(to.data) + first;
    for (size_t i = 0; i < sum.size(); ++i) row[i] = static_cast<float>(sum[i]);
    return;
  }
  uint16_t* row = static_cast<uint16_t*>(to.data) + first;
  const auto round = to.dtype == DType::kF16 ? ToF16 : DoubleToBF16;
  for (size_t i = 0; i < sum.size(); ++i) row[i] = round(sum[i]);
}

// Merges one row, `o_row`-th of O and `lse_row`-th of LSE.
void MergeRow(absl::Span<const Partial> partials, int64_t o_row,
              int64_t lse_row, std::vector<double>& sum, const Tensor& o,
              const Tensor& lse) {
  const auto lse_of = [lse_row](const Partial& partial) -> double {
    return static_cast<const float*>(partial.lse.data)[lse_row];
  };
  double highest = -kInfinity;
  double total = 0;
  for (const Partial& partial : partials) {
    highest = std::max(highest, lse_of(partial));
  }
  for (const Partial& partial : partials) {
    // Also where all are empty: exp(-inf + inf) would be NaN.
    if (lse_of(partial) == -kInfinity) continue;
    total += std::exp(lse_of(partial) - highest);
  }
  std::fill(sum.begin(), sum.end(), 0.0);
  const int64_t first = o_row * static_cast<int64_t>(sum.size());
  for (const Partial& partial : partials) {
    if (lse_of(partial) == -kInfinity) continue;
    AddRow(partial.o, first, std::exp(lse_of(partial) - highest) / total, sum);
  }
  StoreRow(sum, first, o);
  if (lse.shape.empty()) return;
  static_cast<float*>(lse.data)[lse_row] =
      static_cast<float>(total == 0 ? -kInfinity : highest + std::log(total));
}

}  // namespace

absl::Status MergePartials(absl::Span<const Partial> partials, Layout layout,
                           const Tensor& o, const Tensor& lse) {
  if (absl::Status status = Check(partials, layout, o, lse); !status.ok()) {
    return status;
  }
  // LSE is [batch, heads, rows] in every layout; only O's order differs.
  const Shape& s = o.shape;
  const bool packed = layout == Layout::kPacked;
  const bool heads_first = layout == Layout::kBhsd;
  const int64_t batch = packed ? 1 : s[0];
  const int64_t heads = packed || heads_first ? s[1] : s[2];
  const int64_t rows = packed ? s[0] : heads_first ? s[2] : s[1];
  std::vector<double> sum(s.back());
  int64_t lse_row = 0;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t r = 0; r < rows; ++r, ++lse_row) {
        const int64_t o_row =
            heads_first ? lse_row : (b * rows + r) * heads + h;
        MergeRow(partials, o_row, lse_row, sum, o, lse);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace attnd::client
