#include "kernels/reference/online_softmax.h"

namespace attnd::reference {

template <typename T>
T SoftmaxTwoPass(int64_t n, T* row) {
  SoftmaxState<T> state;
  for (int64_t j = 0; j < n; ++j) state.Update(row[j]);
  for (int64_t j = 0; j < n; ++j)
    row[j] = state.m == kMinusInf<T> ? T{0} : state.Weight(row[j]) / state.l;
  return state.Lse();
}

template <typename T>
bool OnlineSoftmaxForward(const Head<T>& head, HeadForward<T>& out) {
  const int64_t value_dim = head.v().cols();
  for (int64_t i = 0; i < head.rows(); ++i) {
    if (!head.Proceed()) return false;
    SoftmaxState<T> state;
    T* o = out.o[i];
    for (int64_t j = 0; j < head.columns(); ++j) {
      T s;
      head.Scores(i, j, j + 1, &s);
      if (s == kMinusInf<T>) continue;
      const T shrink = state.Update(s);
      for (int64_t d = 0; d < value_dim; ++d) o[d] *= shrink;  // (E9)
      Axpy(state.Weight(s), head.v()[j], value_dim, o);
    }
    if (state.m != kMinusInf<T>)
      for (int64_t d = 0; d < value_dim; ++d) o[d] /= state.l;
    out.lse[i] = state.Lse();
  }
  return true;
}

template <typename T>
bool OnlineSoftmaxBackward(const Head<T>& head, const HeadUpstream<T>& in,
                           HeadGradients<T>& out) {
  const int64_t head_dim = head.q().cols(), value_dim = head.v().cols();
  for (int64_t i = 0; i < head.rows(); ++i) {
    if (!head.Proceed()) return false;
    if (in.lse[i] == kMinusInf<T>) continue;
    for (int64_t j = 0; j < head.columns(); ++j) {
      T s, slope;
      head.Scores(i, j, j + 1, &s, &slope);
      if (s == kMinusInf<T>) continue;
      const T p = Probability(s, in.lse[i]);                // (E12)
      Axpy(p, in.d_o[i], value_dim, out.dv[j]);             // (E13)
      const T dp = Dot(in.d_o[i], head.v()[j], value_dim);  // (E14)
      const T ds = p * (dp - in.delta[i]) * slope;          // (E15), (E16)
      Axpy(ds, head.k()[j], head_dim, out.dq[i]);           // (E17)
      Axpy(ds, head.q()[i], head_dim, out.dk[j]);           // (E18)
    }
  }
  return true;
}

template float SoftmaxTwoPass(int64_t, float*);
template double SoftmaxTwoPass(int64_t, double*);
template bool OnlineSoftmaxForward(const Head<float>&, HeadForward<float>&);
template bool OnlineSoftmaxForward(const Head<double>&, HeadForward<double>&);
template bool OnlineSoftmaxBackward(const Head<float>&,
                                    const HeadUpstream<float>&,
                                    HeadGradients<float>&);
template bool OnlineSoftmaxBackward(const Head<double>&,
                                    const HeadUpstream<double>&,
                                    HeadGradients<double>&);

}  // namespace attnd::reference
