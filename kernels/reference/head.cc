#include "kernels/reference/head.h"

#include <algorithm>
#include <cmath>

#include "kernels/dtype.h"

namespace attnd::reference {
namespace {

// Copies `count` tokens of dimension `dim` to rows from `first` on.
template <typename T>
void CopyTokens(const ConstTensorView& from, int64_t b, int64_t h,
                int64_t count, int64_t dim, int64_t first, Matrix<T>& to) {
  for (int64_t t = 0; t < count; ++t) {
    const int64_t base =
        b * from.batch_stride + t * from.token_stride + h * from.head_stride;
    T* row = to[first + t];
    for (int64_t d = 0; d < dim; ++d)
      row[d] = LoadElement(from.data, from.dtype, base + d);
  }
}

}  // namespace

template <typename T>
Head<T>::Head(const Problem& problem, int64_t b, int64_t h)
    : problem_(problem),
      b_(b),
      h_(h),
      q_(QLen(problem, b), problem.head_dim),
      k_(KvLen(problem, b), problem.head_dim),
      v_(KvLen(problem, b), problem.value_dim) {
  CopyTokens(problem.q, b, h, rows(), problem.head_dim, 0, q_);
  const int64_t kv_head = h / problem.group();
  int64_t first = 0, bias_first = 0;
  for (const KvSegment& s : problem.kv) {
    const int64_t len = KvLen(s, b);
    CopyTokens(s.k, b, kv_head, len, problem.head_dim, first, k_);
    CopyTokens(s.v, b, kv_head, len, problem.value_dim, first, v_);
    segments_.push_back({MakeRowIntervals(problem, b, s), first, bias_first});
    first += len;
    bias_first += s.len;
  }
}

template <typename T>
T Head<T>::Bias(int64_t i, int64_t column) const {
  const BiasView& bias = problem_.bias;
  return LoadElement(bias.data, bias.dtype,
                     b_ * bias.batch_stride + h_ * bias.head_stride +
                         i * bias.row_stride + column);
}

template <typename T>
void Head<T>::Scores(int64_t i, int64_t first, int64_t last, T* s,
                     T* slope) const {
  std::fill(s, s + (last - first), kMinusInf<T>);
  if (slope != nullptr) std::fill(slope, slope + (last - first), T{0});
  for (const Segment& segment : segments_) {
    const Interval seen = segment.intervals.Row(i);
    const int64_t lo = std::max(first, segment.first + seen.lo);
    const int64_t hi = std::min(last, segment.first + seen.hi);
    for (int64_t j = lo; j < hi; ++j) {
      const T dot = Dot(q_[i], k_[j], q_.cols());
      T x = problem_.scale * dot;  // (E1)
      // f32's range, also in double, which alone never leaves it before the
      // scale is applied. NaN stays NaN.
      constexpr T kMost = std::numeric_limits<float>::max();
      if (std::abs(x) > kMost) x = std::copysign(kMost, x);
      T derivative = 1;
      if (problem_.softcap.has_value()) {  // (E2)
        const T cap = *problem_.softcap;
        // 1 - tanh^2 without its cancellation.
        const T e = std::exp(-2 * std::abs(x / cap));
        derivative = 4 * e / ((1 + e) * (1 + e));
        x = cap * std::tanh(x / cap);
      }
      if (problem_.bias) x += Bias(i, segment.bias_first + (j - segment.first));
      s[j - first] = x;
      if (slope != nullptr) slope[j - first] = derivative;
    }
  }
}

template <typename T>
bool Head<T>::Visible(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const {
  for (const Segment& segment : segments_) {
    const Interval seen = segment.intervals.Rows(i0, i1 - 1);
    if (std::max(j0, segment.first + seen.lo) <
        std::min(j1, segment.first + seen.hi))
      return true;
  }
  return false;
}

template class Head<float>;
template class Head<double>;

}  // namespace attnd::reference
