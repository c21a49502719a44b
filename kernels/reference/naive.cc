#include "kernels/reference/naive.h"

#include <cmath>

#include "kernels/dtype.h"

namespace attnd::reference {
namespace {

template <typename T>
void RoundAll(std::optional<DType> dtype, Matrix<T>& m) {
  if (!dtype.has_value() || *dtype == DType::kF32) return;
  for (int64_t i = 0; i < m.rows(); ++i)
    for (int64_t j = 0; j < m.cols(); ++j) m[i][j] = RoundTo(*dtype, m[i][j]);
}

// C += A B; false: cancelled. Zeros are skipped: what a mask hides must not
// reach a sum as 0 * NaN.
template <typename T>
bool AddProduct(const Head<T>& head, const Matrix<T>& a, const Matrix<T>& b,
                Matrix<T>& c) {
  for (int64_t i = 0; i < a.rows(); ++i) {
    if (!head.Proceed()) return false;
    for (int64_t j = 0; j < a.cols(); ++j)
      if (a[i][j] != 0) Axpy(a[i][j], b[j], b.cols(), c[i]);
  }
  return true;
}

// C += A^T B; false: cancelled.
template <typename T>
bool AddTransposedProduct(const Head<T>& head, const Matrix<T>& a,
                          const Matrix<T>& b, Matrix<T>& c) {
  for (int64_t i = 0; i < a.rows(); ++i) {
    if (!head.Proceed()) return false;
    for (int64_t j = 0; j < a.cols(); ++j)
      if (a[i][j] != 0) Axpy(a[i][j], b[i], b.cols(), c[j]);
  }
  return true;
}

}  // namespace

template <typename T>
T SoftmaxThreePass(int64_t n, T* row) {
  T m = kMinusInf<T>;  // (E3)
  for (int64_t j = 0; j < n; ++j) m = MaxOrNan(m, row[j]);
  if (m == kMinusInf<T>) {
    for (int64_t j = 0; j < n; ++j) row[j] = 0;
    return m;
  }
  T l = 0;  // (E4)
  for (int64_t j = 0; j < n; ++j) l += std::exp(row[j] - m);
  for (int64_t j = 0; j < n; ++j) row[j] = std::exp(row[j] - m) / l;  // (E5)
  return m + std::log(l);                                             // (E7)
}

template <typename T>
bool NaiveForward(const Head<T>& head, std::optional<DType> round_to,
                  HeadForward<T>& out) {
  Matrix<T> s(head.rows(), head.columns());
  for (int64_t i = 0; i < head.rows(); ++i) {
    if (!head.Proceed()) return false;
    head.Scores(i, 0, head.columns(), s[i]);  // (E1), (E2)
  }
  Matrix<T> p = s;
  for (int64_t i = 0; i < head.rows(); ++i) {
    if (!head.Proceed()) return false;
    out.lse[i] = SoftmaxThreePass(p.cols(), p[i]);
  }
  RoundAll(round_to, p);
  return AddProduct(head, p, head.v(), out.o);  // (E6)
}

template <typename T>
bool NaiveBackward(const Head<T>& head, std::optional<DType> round_to,
                   const HeadUpstream<T>& in, HeadGradients<T>& out) {
  Matrix<T> p(head.rows(), head.columns());
  Matrix<T> slope(head.rows(), head.columns());
  for (int64_t i = 0; i < head.rows(); ++i) {
    if (!head.Proceed()) return false;
    head.Scores(i, 0, head.columns(), p[i], slope[i]);
    for (int64_t j = 0; j < head.columns(); ++j) {  // (E12)
      const bool empty = p[i][j] == kMinusInf<T> || in.lse[i] == kMinusInf<T>;
      p[i][j] = empty ? T{0} : Probability(p[i][j], in.lse[i]);
    }
  }
  Matrix<T> ds(head.rows(), head.columns());
  for (int64_t i = 0; i < head.rows(); ++i) {
    if (!head.Proceed()) return false;
    for (int64_t j = 0; j < head.columns(); ++j) {
      if (p[i][j] == 0) continue;
      const T dp = Dot(in.d_o[i], head.v()[j], head.v().cols());  // (E14)
      ds[i][j] = p[i][j] * (dp - in.delta[i]) * slope[i][j];  // (E15), (E16)
    }
  }
  RoundAll(round_to, p);
  RoundAll(round_to, ds);
  return AddTransposedProduct(head, p, in.d_o, out.dv) &&   // (E13)
         AddProduct(head, ds, head.k(), out.dq) &&          // (E17)
         AddTransposedProduct(head, ds, head.q(), out.dk);  // (E18)
}

template float SoftmaxThreePass(int64_t, float*);
template double SoftmaxThreePass(int64_t, double*);
template bool NaiveForward(const Head<float>&, std::optional<DType>,
                           HeadForward<float>&);
template bool NaiveForward(const Head<double>&, std::optional<DType>,
                           HeadForward<double>&);
template bool NaiveBackward(const Head<float>&, std::optional<DType>,
                            const HeadUpstream<float>&, HeadGradients<float>&);
template bool NaiveBackward(const Head<double>&, std::optional<DType>,
                            const HeadUpstream<double>&,
                            HeadGradients<double>&);

}  // namespace attnd::reference
