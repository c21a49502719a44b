#include "client/tensor_size.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/check_enum.h"
#include "proto/wire/status.h"

namespace attnd::client {

int64_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

absl::StatusOr<int64_t> TensorBytes(absl::string_view field, DType dtype,
                                    const std::vector<int64_t>& shape) {
  constexpr int64_t kLimit = int64_t{1} << 62;
  if (dtype > DType::kBF16) {
    return CheckEnum(absl::StrCat(field, ".dtype"), dtype, DType::kBF16);
  }
  int64_t volume = SizeOf(dtype);
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) {
      return wire::FieldError(absl::StrCat(field, ".shape"),
                              absl::StrCat("negative dimension ", extent));
    }
    if (extent == 0) {
      empty = true;
      continue;
    }
    if (volume > kLimit / extent) {
      return wire::FieldError(absl::StrCat(field, ".shape"),
                              absl::StrCat(ShapeText(shape), " overflows"));
    }
    volume *= extent;
  }
  return empty ? 0 : volume;
}

std::vector<int64_t> OutputShape(const ConstTensor& q, const ConstTensor& v) {
  std::vector<int64_t> shape = q.shape;
  if (shape.empty() || v.shape.empty()) return {};
  shape.back() = v.shape.back();
  return shape;
}

std::vector<int64_t> LseShape(const ConstTensor& q, Layout layout) {
  const std::vector<int64_t>& s = q.shape;
  if (s.size() != (layout == Layout::kPacked ? 3 : 4)) return {};
  if (layout == Layout::kPacked) return {s[1], s[0]};
  if (layout == Layout::kBhsd) return {s[0], s[1], s[2]};
  return {s[0], s[2], s[1]};
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace attnd::client
