// Lengths, positions and scalars of a request, and what it costs.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "kernels/mask.h"
#include "kernels/pairs.h"
#include "kernels/request_checks.h"

namespace attnd {
namespace {

// One side of the attention: rows (Q) or columns (K/V).
struct Side {
  absl::string_view lens_field, start_field, stride_field;
  const std::vector<int64_t>& lens;
  const std::vector<int64_t>& starts;
  int64_t stride;
  int64_t len;  // of the tensor

  int64_t Len(int64_t b) const { return lens.empty() ? len : lens[b]; }
  bool HasStart() const { return !starts.empty(); }
  int64_t Start(int64_t b) const {
    return starts.size() == 1 ? starts[0] : starts[b];
  }
};

Side QSide(const RequestSpec& spec, const Sizes& sizes) {
  return {"attention.q_lens", "attention.q_start", "attention.q_stride",
          spec.q_lens,        spec.q_start,        spec.q_stride,
          sizes.q_len};
}

Side KvSide(const RequestSpec& spec, const Sizes& sizes) {
  return {"attention.kv_lens", "attention.kv_start", "attention.kv_stride",
          spec.kv_lens,        spec.kv_start,        spec.kv_stride,
          sizes.kv_len};
}

absl::Status CheckSide(const Side& side, int64_t batch) {
  if (!side.lens.empty() && side.lens.size() != batch)
    return FieldError(side.lens_field,
                      absl::StrCat("has ", side.lens.size(), " entries for ",
                                   batch, " sequences"));
  for (size_t b = 0; b < side.lens.size(); ++b)
    if (side.lens[b] < 0 || side.lens[b] > side.len)
      return FieldError(side.lens_field,
                        absl::StrCat("sequence ", b, "'s length ", side.lens[b],
                                     " is not in 0..", side.len));
  if (side.starts.size() > 1 && side.starts.size() != batch)
    return FieldError(side.start_field,
                      absl::StrCat("has ", side.starts.size(), " entries for ",
                                   batch, " sequences"));
  if (side.stride < 1 || side.stride > kMaxPosition)
    return FieldError(side.stride_field,
                      absl::StrCat("must be in 1..2^60, not ", side.stride));
  return absl::OkStatus();
}

// The positions of one sequence: `start` and, if it has tokens, the last one.
absl::Status CheckSpan(const Side& side, int64_t len, int64_t start) {
  if (start < -kMaxPosition || start > kMaxPosition)
    return FieldError(side.start_field,
                      absl::StrCat(start, " is not within +-2^60"));
  int64_t last = 0;
  const bool overflows = __builtin_mul_overflow(std::max<int64_t>(len - 1, 0),
                                                side.stride, &last) ||
                         __builtin_add_overflow(start, last, &last) ||
                         last > kMaxPosition;
  if (!overflows) return absl::OkStatus();
  return FieldError(side.HasStart() ? side.start_field : side.stride_field,
                    "the last position is not within +-2^60");
}

// Whether sequences differ in anything but their data.
bool Uniform(const RequestSpec& spec) {
  return spec.q_lens.empty() && spec.kv_lens.empty() &&
         spec.q_start.size() <= 1 && spec.kv_start.size() <= 1;
}

}  // namespace

absl::Status CheckPositions(const RequestSpec& spec, const Sizes& sizes) {
  const Side q = QSide(spec, sizes), kv = KvSide(spec, sizes);
  for (const Side& side : {q, kv})
    if (absl::Status s = CheckSide(side, sizes.batch); !s.ok()) return s;
  const int64_t sequences =
      Uniform(spec) ? std::min<int64_t>(sizes.batch, 1) : sizes.batch;
  for (int64_t b = 0; b < sequences; ++b) {
    const int64_t q_start = q.HasStart() ? q.Start(b) : kv.Len(b) - q.Len(b);
    if (absl::Status s = CheckSpan(q, q.Len(b), q_start); !s.ok()) return s;
    const int64_t kv_start = kv.HasStart() ? kv.Start(b) : 0;
    if (absl::Status s = CheckSpan(kv, kv.Len(b), kv_start); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status CheckScalars(const RequestSpec& spec) {
  if (spec.scale.has_value() && !std::isfinite(*spec.scale))
    return FieldError("attention.scale", "must be finite");
  if (spec.softcap.has_value() &&
      !(std::isfinite(*spec.softcap) && *spec.softcap > 0))
    return FieldError("attention.softcap", "must be finite and greater than 0");
  if (spec.mask.left < -1)
    return FieldError("attention.mask.window_left",
                      "must be at least 0, or -1 for unlimited");
  if (spec.mask.right < -1)
    return FieldError("attention.mask.window_right",
                      "must be at least 0, or -1 for unlimited");
  return absl::OkStatus();
}

double CountFlops(const RequestSpec& spec, const Sizes& sizes) {
  const Side q = QSide(spec, sizes), kv = KvSide(spec, sizes);
  const bool uniform = Uniform(spec);
  const int64_t sequences =
      uniform ? std::min<int64_t>(sizes.batch, 1) : sizes.batch;
  const Mask mask = Resolve(spec.mask);
  RowIntervals rows;
  rows.q_stride = q.stride;
  rows.kv_stride = kv.stride;
  rows.left = mask.left;
  rows.right = mask.right;
  double pairs = 0;
  for (int64_t b = 0; b < sequences; ++b) {
    rows.rows = q.Len(b);
    rows.columns = kv.Len(b);
    rows.q_start = q.HasStart() ? q.Start(b) : kv.Len(b) - q.Len(b);
    rows.kv_start = kv.HasStart() ? kv.Start(b) : 0;
    pairs += CountPairs(rows);
  }
  if (uniform) pairs *= sizes.batch;
  const double forward =
      pairs * sizes.q_heads * 2.0 * (sizes.head_dim + sizes.value_dim);
  return spec.op == Op::kForward ? forward : 2.5 * forward;
}

}  // namespace attnd
