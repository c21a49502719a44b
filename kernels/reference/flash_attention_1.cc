#include "kernels/reference/flash_attention_1.h"

#include <vector>

namespace attnd::reference {
namespace {

// One row of Algorithm 1's inner loop (lines 9-13): the block's own softmax,
// then both states brought to the common maximum. O stays normalised.
template <typename T>
void UpdateRow(const Head<T>& head, int64_t j0, int64_t n, T* s, T& m, T& l,
               T* o) {
  T block_m = kMinusInf<T>;  // m~
  for (int64_t j = 0; j < n; ++j) block_m = MaxOrNan(block_m, s[j]);
  if (block_m == kMinusInf<T>) return;  // nothing seen: exp(-inf + inf) is NaN
  T block_l = 0;                        // l~
  for (int64_t j = 0; j < n; ++j) {
    s[j] = std::exp(s[j] - block_m);  // P~
    block_l += s[j];
  }
  const T new_m = MaxOrNan(m, block_m);
  const T old_weight = l * std::exp(m - new_m);
  const T block_weight = std::exp(block_m - new_m);
  const T new_l = old_weight + block_weight * block_l;
  const int64_t value_dim = head.v().cols();
  for (int64_t d = 0; d < value_dim; ++d) o[d] *= old_weight / new_l;  // (E10)
  for (int64_t j = 0; j < n; ++j)
    if (s[j] != 0)
      Axpy(s[j] * block_weight / new_l, head.v()[j0 + j], value_dim, o);
  m = new_m;
  l = new_l;
}

}  // namespace

template <typename T>
bool FlashAttention1Forward(const Head<T>& head, BlockSizes blocks,
                            HeadForward<T>& out) {
  std::vector<T> m(head.rows(), kMinusInf<T>), l(head.rows(), T{0}),
      s(blocks.columns);
  const bool done = VisitByColumns(head, blocks, [&](const BlockRange& r) {
    for (int64_t i = r.i0; i < r.i1; ++i) {
      head.Scores(i, r.j0, r.j1, s.data());
      UpdateRow(head, r.j0, r.j1 - r.j0, s.data(), m[i], l[i], out.o[i]);
    }
  });
  for (int64_t i = 0; i < head.rows(); ++i)
    out.lse[i] = m[i] == kMinusInf<T> ? m[i] : m[i] + std::log(l[i]);  // (E7)
  return done;
}

// Algorithm 4, with P from LSE instead of m and l, which is the same (E12).
template <typename T>
bool FlashAttention1Backward(const Head<T>& head, BlockSizes blocks,
                             const HeadUpstream<T>& in, HeadGradients<T>& out) {
  Matrix<T> p(blocks.rows, blocks.columns), dx(blocks.rows, blocks.columns);
  return VisitByColumns(head, blocks, [&](const BlockRange& r) {
    BackwardBlock(head, r, in, p, dx);
    AddToKv(head, r, in, p, dx, out);
    AddToQ(head, r, dx, out);
  });
}

template bool FlashAttention1Forward(const Head<float>&, BlockSizes,
                                     HeadForward<float>&);
template bool FlashAttention1Forward(const Head<double>&, BlockSizes,
                                     HeadForward<double>&);
template bool FlashAttention1Backward(const Head<float>&, BlockSizes,
                                      const HeadUpstream<float>&,
                                      HeadGradients<float>&);
template bool FlashAttention1Backward(const Head<double>&, BlockSizes,
                                      const HeadUpstream<double>&,
                                      HeadGradients<double>&);

}  // namespace attnd::reference
