#include "kernels/cuda/team/sums.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/status.h"
#include "kernels/cuda/team/sum_kernels.h"

namespace attnd::cuda {
namespace {

// Whether rows that begin at `data` and lie `stride` elements apart all begin
// at multiples of 16 bytes.
bool IsAligned(const void* data, DType dtype, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 &&
         stride * SizeOf(dtype) % 16 == 0;
}

template <class Void>
bool IsAligned(const BasicTensorView<Void>& t) {
  return IsAligned(t.data, t.dtype, t.token_stride) &&
         IsAligned(t.data, t.dtype, t.head_stride);
}

// Rows that follow each other without a gap, in all tensors, are one.
void JoinRows(SumParams& p) {
  bool dense = p.to_pitch == p.row_elements;
  for (int t = 0; t < p.num_terms; ++t) {
    dense = dense && p.terms[t].pitch == p.row_elements;
  }
  if (!dense) return;
  p.row_elements *= p.rows;
  p.rows = 1;
}

}  // namespace

absl::Status EnqueueSum(const BlockSum& sum, cudaStream_t stream) {
  if (sum.rows == 0 || sum.row_elements == 0) return absl::OkStatus();
  static_assert(SumParams::kMostTerms == BlockSum::kMostTerms);
  if (sum.terms.size() > SumParams::kMostTerms) {
    return absl::InternalError("a sum of more terms than there is room for");
  }
  SumParams params;
  bool aligned = sum.rows == 1 ? IsAligned(sum.to, sum.dtype, 0)
                               : IsAligned(sum.to, sum.dtype, sum.to_pitch);
  for (const BlockSum::Term& term : sum.terms) {
    params.terms[params.num_terms++] = {term.data, term.pitch};
    aligned = aligned &&
              IsAligned(term.data, DType::kF32, sum.rows == 1 ? 0 : term.pitch);
  }
  params.to = sum.to;
  params.to_pitch = sum.to_pitch;
  params.row_elements = sum.row_elements;
  params.rows = sum.rows;
  JoinRows(params);
  return Broken(ToStatus(LaunchSum(params, sum.dtype, aligned, stream), "sum"));
}

absl::Status EnqueueDot(const RowDots& dots, cudaStream_t stream) {
  if (dots.rows == 0 || dots.heads == 0) return absl::OkStatus();
  if (dots.dim < 1 || dots.dim > kMaxHeadDim ||
      (dots.b.dtype != dots.a.dtype && dots.b.dtype != DType::kF32)) {
    return absl::InternalError("dots of such rows have no kernel");
  }
  const DotParams params{.a = dots.a,
                         .b = dots.b,
                         .to = dots.to,
                         .rows = dots.rows,
                         .heads = dots.heads,
                         .dim = static_cast<int>(dots.dim),
                         .a_aligned = IsAligned(dots.a),
                         .b_aligned = IsAligned(dots.b)};
  return Broken(ToStatus(LaunchDot(params, stream), "dots"));
}

absl::Status EnqueueMerge(const RowMerges& merges, cudaStream_t stream) {
  if (merges.rows == 0 || merges.heads == 0) return absl::OkStatus();
  static_assert(MergeParams::kMostTerms == RowMerges::kMostTerms);
  if (merges.terms.size() > MergeParams::kMostTerms || merges.dim < 1 ||
      merges.dim > kMaxHeadDim) {
    return absl::InternalError("a merge of such rows has no kernel");
  }
  MergeParams params;
  bool aligned = IsAligned(merges.o);
  for (const RowState& term : merges.terms) {
    if (merges.o && term.o.dtype != DType::kF32) {
      return absl::InternalError("only f32 can be merged");
    }
    params.terms[params.num_terms++] = {static_cast<const float*>(term.o.data),
                                        term.o.token_stride, term.o.head_stride,
                                        term.lse.data, term.lse.head_stride};
    aligned = aligned && IsAligned(term.o);
  }
  params.o = merges.o;
  params.lse = merges.lse;
  params.rows = merges.rows;
  params.heads = merges.heads;
  params.dim = static_cast<int>(merges.dim);
  return Broken(ToStatus(LaunchMerge(params, aligned, stream), "merge"));
}

}  // namespace attnd::cuda
