#include "kernels/reference/flash_attention_2.h"

#include <vector>

namespace attnd::reference {
namespace {

// The state of a block of rows, on chip for as long as its columns pass by.
template <typename T>
struct RowBlock {
  RowBlock(int64_t rows, int64_t value_dim)
      : o(rows, value_dim), m(rows, kMinusInf<T>), l(rows, T{0}) {}

  Matrix<T> o;  // unnormalised
  std::vector<T> m, l;
};

// (E8), (E9) a block of columns at a time; `s` is the row's scores.
template <typename T>
void UpdateRow(const Head<T>& head, int64_t j0, int64_t n, T* s, int64_t row,
               RowBlock<T>& state) {
  const T previous = state.m[row];
  T m = previous;
  for (int64_t j = 0; j < n; ++j) m = MaxOrNan(m, s[j]);
  if (m == kMinusInf<T>) return;  // nothing seen yet: exp(-inf + inf) is NaN
  const int64_t value_dim = head.v().cols();
  const T shrink = std::exp(previous - m);
  T* o = state.o[row];
  for (int64_t d = 0; d < value_dim; ++d) o[d] *= shrink;
  T block_l = 0;
  for (int64_t j = 0; j < n; ++j) {
    const T p = std::exp(s[j] - m);
    block_l += p;
    if (p != 0) Axpy(p, head.v()[j0 + j], value_dim, o);
  }
  state.l[row] = state.l[row] * shrink + block_l;
  state.m[row] = m;
}

}  // namespace

template <typename T>
bool FlashAttention2Forward(const Head<T>& head, BlockSizes blocks,
                            HeadForward<T>& out) {
  const int64_t value_dim = head.v().cols();
  std::vector<T> s(blocks.columns);
  return ForEachBlock(head.rows(), blocks.rows, [&](int64_t i0, int64_t i1) {
    RowBlock<T> state(i1 - i0, value_dim);
    const bool done = VisitRows(head, i0, i1, blocks, [&](const BlockRange& r) {
      for (int64_t i = i0; i < i1; ++i) {
        head.Scores(i, r.j0, r.j1, s.data());
        UpdateRow(head, r.j0, r.j1 - r.j0, s.data(), i - i0, state);
      }
    });
    for (int64_t i = i0; i < i1; ++i) {
      const T m = state.m[i - i0], l = state.l[i - i0];
      out.lse[i] = m == kMinusInf<T> ? m : m + std::log(l);  // (E7)
      if (m == kMinusInf<T>) continue;
      for (int64_t d = 0; d < value_dim; ++d)
        out.o[i][d] = state.o[i - i0][d] / l;
    }
    return done;
  });
}

template <typename T>
bool FlashAttention2Backward(const Head<T>& head, BlockSizes blocks,
                             const HeadUpstream<T>& in, HeadGradients<T>& out) {
  Matrix<T> p(blocks.rows, blocks.columns), dx(blocks.rows, blocks.columns);
  // The first kernel: a block of columns owns its rows of dK and dV.
  const bool done = VisitByColumns(head, blocks, [&](const BlockRange& r) {
    BackwardBlock(head, r, in, p, dx);
    AddToKv(head, r, in, p, dx, out);
  });
  if (!done) return false;
  // The second: a block of rows owns its rows of dQ.
  return ForEachBlock(head.rows(), blocks.rows, [&](int64_t i0, int64_t i1) {
    return VisitRows(head, i0, i1, blocks, [&](const BlockRange& r) {
      BackwardBlock(head, r, in, p, dx);
      AddToQ(head, r, dx, out);
    });
  });
}

template bool FlashAttention2Forward(const Head<float>&, BlockSizes,
                                     HeadForward<float>&);
template bool FlashAttention2Forward(const Head<double>&, BlockSizes,
                                     HeadForward<double>&);
template bool FlashAttention2Backward(const Head<float>&, BlockSizes,
                                      const HeadUpstream<float>&,
                                      HeadGradients<float>&);
template bool FlashAttention2Backward(const Head<double>&, BlockSizes,
                                      const HeadUpstream<double>&,
                                      HeadGradients<double>&);

}  // namespace attnd::reference
