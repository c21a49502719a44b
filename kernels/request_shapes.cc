// Which shapes and types make a request: the first half of its validation.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/field_error.h"
#include "kernels/request_checks.h"

namespace attnd {
namespace {

std::string Field(TensorId id, absl::string_view member) {
  return absl::StrCat(TensorName(id), ".", member);
}

absl::Status ShapeError(TensorId id, absl::string_view description) {
  return FieldError(Field(id, "shape"), description);
}

// "[2, 16, 8, 64]", at most the first few dimensions.
std::string ShapeText(absl::Span<const int64_t> shape) {
  constexpr size_t kShown = 6;
  return absl::StrCat(
      "[", absl::StrJoin(shape.first(std::min(shape.size(), kShown)), ", "),
      shape.size() > kShown ? ", ...]" : "]");
}

// A tensor of Q's kind, whatever the layout.
struct Dims {
  int64_t batch = 0;  // 1 when packed
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t dim = 0;
};

absl::StatusOr<Dims> ParseDims(TensorId id, const RequestSpec& spec) {
  const std::optional<TensorSpec>& tensor = spec.inputs[id];
  if (!tensor.has_value()) return FieldError(TensorName(id), "is required");
  const auto& shape = tensor->shape;
  const size_t rank = spec.layout == Layout::kPacked ? 3 : 4;
  if (shape.size() != rank)
    return ShapeError(id, absl::StrCat("must have ", rank, " dimensions, not ",
                                       shape.size()));
  if (absl::Status s = CheckedBytes(*tensor, id, ".shape").status(); !s.ok())
    return s;
  Dims dims;
  switch (spec.layout) {
    case Layout::kBshd:
      dims = {shape[0], shape[1], shape[2], shape[3]};
      break;
    case Layout::kBhsd:
      dims = {shape[0], shape[2], shape[1], shape[3]};
      break;
    case Layout::kPacked:
      dims = {1, shape[0], shape[1], shape[2]};
      break;
  }
  if (dims.dim < 1 || dims.dim > kMaxHeadDim)
    return ShapeError(id, absl::StrCat("the last dimension must be in 1..",
                                       kMaxHeadDim, ", not ", dims.dim));
  if (dims.batch * dims.heads > kMaxDimension)
    return ShapeError(id, "batch * heads exceeds 2^31");
  return dims;
}

absl::Status CheckDType(TensorId id, const RequestSpec& spec, bool or_f32) {
  const DType dtype = spec.inputs[id]->dtype;
  if (dtype == spec.inputs[TensorId::kQ]->dtype) return absl::OkStatus();
  if (or_f32 && dtype == DType::kF32) return absl::OkStatus();
  return FieldError(Field(id, "dtype"),
                    or_f32 ? "must be as q's or F32" : "must be as q's");
}

// The sum and the largest of packed lengths, which must be `total` together.
absl::StatusOr<int64_t> LongestPacked(absl::Span<const int64_t> lens,
                                      int64_t total, absl::string_view field) {
  int64_t sum = 0, longest = 0;
  for (size_t b = 0; b < lens.size(); ++b) {
    if (lens[b] < 0 || lens[b] > total - sum)
      return FieldError(
          field, absl::StrCat("sequence ", b, "'s length ", lens[b],
                              " is negative or goes beyond the tensor's ",
                              total, " tokens"));
    sum += lens[b];
    longest = std::max(longest, lens[b]);
  }
  if (sum != total)
    return FieldError(
        field, absl::StrCat("sums to ", sum, ", but the tensor has ", total,
                            " tokens"));
  return longest;
}

absl::Status CutPacked(const RequestSpec& spec, Sizes& sizes) {
  sizes.batch = spec.q_lens.size();
  if (spec.kv_lens.size() != spec.q_lens.size())
    return FieldError("attention.kv_lens",
                      absl::StrCat("has ", spec.kv_lens.size(),
                                   " sequences, q_lens has ", sizes.batch));
  if (sizes.batch > kMaxDimension ||
      sizes.batch * sizes.q_heads > kMaxDimension)
    return FieldError("attention.q_lens", "batch * heads exceeds 2^31");
  const auto q_len =
      LongestPacked(spec.q_lens, sizes.total_q, "attention.q_lens");
  if (!q_len.ok()) return q_len.status();
  const auto kv_len =
      LongestPacked(spec.kv_lens, sizes.total_kv, "attention.kv_lens");
  if (!kv_len.ok()) return kv_len.status();
  sizes.q_len = *q_len;
  sizes.kv_len = *kv_len;
  return absl::OkStatus();
}

bool IsInput(TensorId id, Op op) {
  switch (id) {
    case TensorId::kQ:
    case TensorId::kK:
    case TensorId::kV:
    case TensorId::kBias:
      return true;
    case TensorId::kO:
    case TensorId::kLse:
    case TensorId::kDO:
    case TensorId::kDelta:
    case TensorId::kDLse:
      return op == Op::kBackward;
    default:
      return false;
  }
}

absl::Status CheckBias(const RequestSpec& spec, const Sizes& sizes) {
  const auto& shape = spec.inputs[TensorId::kBias]->shape;
  const TensorSpec full = ExpectedSpec(TensorId::kBias, spec, sizes);
  const bool fits = shape.size() == 4 &&
                    (shape[0] == 1 || shape[0] == full.shape[0]) &&
                    (shape[1] == 1 || shape[1] == full.shape[1]) &&
                    shape[2] == full.shape[2] && shape[3] == full.shape[3];
  if (fits) return CheckDType(TensorId::kBias, spec, /*or_f32=*/true);
  return ShapeError(TensorId::kBias,
                    absl::StrCat("must be ", ShapeText(full.shape),
                                 " with 1 allowed for the first two, not ",
                                 ShapeText(shape)));
}

absl::Status CheckInput(TensorId id, const RequestSpec& spec,
                        const Sizes& sizes) {
  const std::optional<TensorSpec>& tensor = spec.inputs[id];
  if (!tensor.has_value()) return absl::OkStatus();
  if (!IsInput(id, spec.op))
    return FieldError(TensorName(id), "is not an input of this operation");
  if (absl::Status s = CheckedBytes(*tensor, id, ".shape").status(); !s.ok())
    return s;
  if (id == TensorId::kBias) return CheckBias(spec, sizes);
  const TensorSpec expected = ExpectedSpec(id, spec, sizes);
  if (tensor->shape != expected.shape)
    return ShapeError(id, absl::StrCat("must be ", ShapeText(expected.shape),
                                       ", not ", ShapeText(tensor->shape)));
  switch (id) {
    case TensorId::kLse:
    case TensorId::kDelta:
    case TensorId::kDLse:
      if (tensor->dtype != DType::kF32)
        return FieldError(Field(id, "dtype"), "must be F32");
      return absl::OkStatus();
    default:
      return CheckDType(id, spec, /*or_f32=*/id == TensorId::kO);
  }
}

}  // namespace

absl::StatusOr<int64_t> CheckedBytes(const TensorSpec& spec, TensorId id,
                                     absl::string_view member) {
  const auto error = [&](absl::string_view description) {
    return FieldError(absl::StrCat(TensorName(id), member), description);
  };
  bool empty = false;
  for (int64_t dim : spec.shape) {
    if (dim < 0 || dim > kMaxDimension)
      return error(absl::StrCat("dimensions must be in 0..2^31, not ", dim));
    empty = empty || dim == 0;
  }
  if (empty) return 0;
  int64_t bytes = SizeOf(spec.dtype);
  for (int64_t dim : spec.shape)
    if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > kMaxTensorBytes)
      return error("exceeds 2^56 bytes");
  return bytes;
}

absl::StatusOr<Sizes> CheckSizes(const RequestSpec& spec) {
  const auto q = ParseDims(TensorId::kQ, spec);
  if (!q.ok()) return q.status();
  const auto k = ParseDims(TensorId::kK, spec);
  if (!k.ok()) return k.status();
  const auto v = ParseDims(TensorId::kV, spec);
  if (!v.ok()) return v.status();
  for (TensorId id : {TensorId::kK, TensorId::kV})
    if (absl::Status s = CheckDType(id, spec, /*or_f32=*/false); !s.ok())
      return s;

  if (k->batch != q->batch)
    return ShapeError(TensorId::kK, "batch differs from q's");
  if (v->batch != q->batch)
    return ShapeError(TensorId::kV, "batch differs from q's");
  if (v->tokens != k->tokens)
    return ShapeError(TensorId::kV, "length differs from k's");
  if (v->heads != k->heads)
    return ShapeError(TensorId::kV, "heads differ from k's");
  if (k->dim != q->dim)
    return ShapeError(TensorId::kK, "head_dim differs from q's");
  if ((k->heads == 0) != (q->heads == 0) ||
      (k->heads != 0 && q->heads % k->heads != 0))
    return ShapeError(
        TensorId::kK,
        absl::StrCat("q's ", q->heads, " heads are not a multiple of k's ",
                     k->heads));
  Sizes sizes;
  sizes.q_heads = q->heads;
  sizes.kv_heads = k->heads;
  sizes.head_dim = q->dim;
  sizes.value_dim = v->dim;
  if (spec.layout == Layout::kPacked) {
    sizes.total_q = q->tokens;
    sizes.total_kv = k->tokens;
    if (absl::Status s = CutPacked(spec, sizes); !s.ok()) return s;
    return sizes;
  }
  sizes.batch = q->batch;
  sizes.q_len = q->tokens;
  sizes.kv_len = k->tokens;
  sizes.total_q = q->batch * q->tokens;  // <= 2^62
  sizes.total_kv = k->batch * k->tokens;
  return sizes;
}

TensorSpec ExpectedSpec(TensorId id, const RequestSpec& spec,
                        const Sizes& sizes) {
  TensorSpec expected{spec.inputs[TensorId::kQ]->dtype, {}};
  const auto tokens = [&](int64_t total, int64_t len, int64_t heads,
                          int64_t dim) {
    if (spec.layout == Layout::kPacked)
      expected.shape = {total, heads, dim};
    else if (spec.layout == Layout::kBshd)
      expected.shape = {sizes.batch, len, heads, dim};
    else
      expected.shape = {sizes.batch, heads, len, dim};
  };
  switch (id) {
    case TensorId::kQ:
    case TensorId::kDQ:
      tokens(sizes.total_q, sizes.q_len, sizes.q_heads, sizes.head_dim);
      break;
    case TensorId::kO:
    case TensorId::kDO:
      tokens(sizes.total_q, sizes.q_len, sizes.q_heads, sizes.value_dim);
      break;
    case TensorId::kK:
    case TensorId::kDK:
      tokens(sizes.total_kv, sizes.kv_len, sizes.kv_heads, sizes.head_dim);
      break;
    case TensorId::kV:
    case TensorId::kDV:
      tokens(sizes.total_kv, sizes.kv_len, sizes.kv_heads, sizes.value_dim);
      break;
    case TensorId::kLse:
    case TensorId::kDelta:
    case TensorId::kDLse:
      expected.dtype = DType::kF32;
      if (spec.layout == Layout::kPacked)
        expected.shape = {sizes.q_heads, sizes.total_q};
      else
        expected.shape = {sizes.batch, sizes.q_heads, sizes.q_len};
      break;
    case TensorId::kBias:
      expected.shape = {sizes.batch, sizes.q_heads, sizes.q_len, sizes.kv_len};
      break;
  }
  return expected;
}

absl::Status CheckInputs(const RequestSpec& spec, const Sizes& sizes) {
  for (int i = 0; i < kTensorIds; ++i)
    if (absl::Status s = CheckInput(static_cast<TensorId>(i), spec, sizes);
        !s.ok())
      return s;
  if (spec.op == Op::kForward) return absl::OkStatus();
  for (TensorId id : {TensorId::kDO, TensorId::kLse})
    if (!spec.inputs[id].has_value())
      return FieldError(TensorName(id), "is required");
  const bool o = spec.inputs[TensorId::kO].has_value();
  const bool delta = spec.inputs[TensorId::kDelta].has_value();
  if (o && delta) return FieldError("delta", "give o or delta, not both");
  if (!o && !delta) return FieldError("o", "o or delta is required");
  return absl::OkStatus();
}

}  // namespace attnd
