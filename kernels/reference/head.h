#ifndef ATTND_KERNELS_REFERENCE_HEAD_H_
#define ATTND_KERNELS_REFERENCE_HEAD_H_

// One (sequence, query head) of a problem, in the papers' terms: dense Q, K
// and V, and a function that gives scores. Everything that the contract adds to
// the papers (layouts, types, segments, lengths, masks, bias, softcap, shared
// K/V heads) is dealt with here, so that the algorithms read as published.
//
// T is float or double: what all arithmetic is done in.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention.h"
#include "kernels/give_way.h"
#include "kernels/mask.h"

namespace attnd::reference {

// Row-major, contiguous, zero at first.
template <typename T>
class Matrix {
 public:
  Matrix() = default;
  Matrix(int64_t rows, int64_t cols)
      : rows_(rows), cols_(cols), data_(rows * cols, T{0}) {}

  T* operator[](int64_t row) { return data_.data() + row * cols_; }
  const T* operator[](int64_t row) const { return data_.data() + row * cols_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

 private:
  int64_t rows_ = 0, cols_ = 0;
  std::vector<T> data_;
};

template <typename T>
inline constexpr T kMinusInf = -std::numeric_limits<T>::infinity();

template <typename T>
T Dot(const T* a, const T* b, int64_t n) {
  T sum = 0;
  for (int64_t d = 0; d < n; ++d) sum += a[d] * b[d];
  return sum;
}

// y += a x
template <typename T>
void Axpy(T a, const T* x, int64_t n, T* y) {
  for (int64_t d = 0; d < n; ++d) y[d] += a * x[d];
}

// x *= a
template <typename T>
void Scale(T a, int64_t n, T* x) {
  for (int64_t d = 0; d < n; ++d) x[d] *= a;
}

// The larger one, or NaN: a NaN score must not look like an empty row.
template <typename T>
T MaxOrNan(T a, T b) {
  return a != a || b <= a ? a : b;
}

// (E12), for scores and LSE above -inf. No score exceeds the LSE of its row but
// by what either was rounded.
template <typename T>
T Probability(T score, T lse) {
  const T below = score - lse;
  return std::exp(below > 0 ? T{0} : below);
}

template <typename T>
class Head {
 public:
  // Copies what lies within the sequence's own lengths; the rest is not read.
  Head(const Problem& problem, int64_t b, int64_t h);

  int64_t rows() const { return q_.rows(); }
  int64_t columns() const { return k_.rows(); }  // of all segments
  const Matrix<T>& q() const { return q_; }      // [rows, head_dim]
  const Matrix<T>& k() const { return k_; }      // [columns, head_dim]
  const Matrix<T>& v() const { return v_; }      // [columns, value_dim]

  // (E1), (E2): s[j - first] = score(i, j) for j in [first, last), -inf where
  // masked; slope[j - first] = d score / d (scale q_i . k_j), if wanted.
  void Scores(int64_t i, int64_t first, int64_t last, T* s,
              T* slope = nullptr) const;
  // Whether any of rows [i0, i1) may see any of columns [j0, j1), by (E21).
  bool Visible(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const;

  // To be asked now and then: gives way, and says whether to go on.
  bool Proceed() const { return attnd::Proceed(problem_); }

 private:
  struct Segment {
    RowIntervals intervals;
    int64_t first;       // of the head's columns
    int64_t bias_first;  // of the bias's columns, which count padding too
  };

  T Bias(int64_t i, int64_t column) const;

  const Problem& problem_;
  int64_t b_, h_;
  Matrix<T> q_, k_, v_;
  std::vector<Segment> segments_;
};

// What forward makes of a head. A row that sees nothing: O = 0, LSE = -inf.
template <typename T>
struct HeadForward {
  Matrix<T> o;         // [rows, value_dim]
  std::vector<T> lse;  // [rows]
};

// What backward starts from.
template <typename T>
struct HeadUpstream {
  Matrix<T> d_o;         // [rows, value_dim]
  std::vector<T> lse;    // [rows]
  std::vector<T> delta;  // [rows]: (E11), less the gradient of LSE
};

// What backward makes of a head, zero at first. dQ and dK lack the factor
// `scale`, which the driver multiplies in once; it also sums dK and dV over the
// query heads that share a K/V head.
template <typename T>
struct HeadGradients {
  Matrix<T> dq;  // [rows, head_dim]
  Matrix<T> dk;  // [columns, head_dim]
  Matrix<T> dv;  // [columns, value_dim]
};

}  // namespace attnd::reference

#endif  // ATTND_KERNELS_REFERENCE_HEAD_H_
