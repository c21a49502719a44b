#ifndef ATTND_KERNELS_REFERENCE_BLOCK_H_
#define ATTND_KERNELS_REFERENCE_BLOCK_H_

// A block of S (or dS): what FlashAttention keeps on chip. Shared by both
// FlashAttention versions, whose arithmetic inside a block is the same.

#include <algorithm>
#include <cmath>

#include "kernels/reference/head.h"

namespace attnd::reference {

struct BlockSizes {
  int64_t rows = 32;     // B_r
  int64_t columns = 64;  // B_c
};

// Rows [i0, i1) by columns [j0, j1).
struct BlockRange {
  int64_t i0, i1, j0, j1;
};

// Calls fn(first, last) for each block of `size` in [0, total).
template <typename Fn>
bool ForEachBlock(int64_t total, int64_t size, Fn fn) {
  for (int64_t first = 0; first < total; first += size)
    if (!fn(first, std::min(first + size, total))) return false;
  return true;
}

// Calls fn with the block unless all of it is masked. False: cancelled.
template <typename T, typename Fn>
bool VisitBlock(const Head<T>& head, const BlockRange& r, Fn fn) {
  if (!head.Proceed()) return false;
  if (head.Visible(r.i0, r.i1, r.j0, r.j1)) fn(r);
  return true;
}

// Visits all blocks: for a block of columns every block of rows, then on to the
// next columns. False: cancelled.
template <typename T, typename Fn>
bool VisitByColumns(const Head<T>& head, BlockSizes sizes, Fn fn) {
  return ForEachBlock(
      head.columns(), sizes.columns, [&](int64_t j0, int64_t j1) {
        return ForEachBlock(head.rows(), sizes.rows,
                            [&](int64_t i0, int64_t i1) {
                              return VisitBlock(head, {i0, i1, j0, j1}, fn);
                            });
      });
}

// Visits the blocks of rows [i0, i1), from left to right. False: cancelled.
template <typename T, typename Fn>
bool VisitRows(const Head<T>& head, int64_t i0, int64_t i1, BlockSizes sizes,
               Fn fn) {
  return ForEachBlock(head.columns(), sizes.columns,
                      [&](int64_t j0, int64_t j1) {
                        return VisitBlock(head, {i0, i1, j0, j1}, fn);
                      });
}

// P_ij of score(i,j) and LSE_i and dX_ij, the gradient of scale q_i . k_j,
// for the block, both 0 where masked: (E12), (E14)-(E16). `p` and `dx` hold a
// block and are indexed from its corner.
template <typename T>
void BackwardBlock(const Head<T>& head, const BlockRange& r,
                   const HeadUpstream<T>& in, Matrix<T>& p, Matrix<T>& dx) {
  for (int64_t i = r.i0; i < r.i1; ++i) {
    T* p_row = p[i - r.i0];
    T* dx_row = dx[i - r.i0];
    head.Scores(i, r.j0, r.j1, p_row, dx_row);  // dx_row: the slope of softcap
    for (int64_t j = 0; j < r.j1 - r.j0; ++j) {
      if (p_row[j] == kMinusInf<T> || in.lse[i] == kMinusInf<T>) {
        p_row[j] = dx_row[j] = 0;
        continue;
      }
      p_row[j] = Probability(p_row[j], in.lse[i]);  // (E12)
      const T dp =
          Dot(in.d_o[i], head.v()[r.j0 + j], head.v().cols());  // (E14)
      dx_row[j] *= p_row[j] * (dp - in.delta[i]);               // (E15), (E16)
    }
  }
}

// dV += P^T dO, dK += dX^T Q, for the block's columns: (E13), (E18).
template <typename T>
void AddToKv(const Head<T>& head, const BlockRange& r,
             const HeadUpstream<T>& in, const Matrix<T>& p, const Matrix<T>& dx,
             HeadGradients<T>& out) {
  for (int64_t i = r.i0; i < r.i1; ++i) {
    for (int64_t j = r.j0; j < r.j1; ++j) {
      if (p[i - r.i0][j - r.j0] == 0) continue;
      Axpy(p[i - r.i0][j - r.j0], in.d_o[i], in.d_o.cols(), out.dv[j]);
      Axpy(dx[i - r.i0][j - r.j0], head.q()[i], head.q().cols(), out.dk[j]);
    }
  }
}

// dQ += dX K, for the block's rows: (E17).
template <typename T>
void AddToQ(const Head<T>& head, const BlockRange& r, const Matrix<T>& dx,
            HeadGradients<T>& out) {
  for (int64_t i = r.i0; i < r.i1; ++i)
    for (int64_t j = r.j0; j < r.j1; ++j)
      if (dx[i - r.i0][j - r.j0] != 0)
        Axpy(dx[i - r.i0][j - r.j0], head.k()[j], head.k().cols(), out.dq[i]);
}

}  // namespace attnd::reference

#endif  // ATTND_KERNELS_REFERENCE_BLOCK_H_
