#ifndef ATTND_KERNELS_REFERENCE_DRIVE_H_
#define ATTND_KERNELS_REFERENCE_DRIVE_H_

// Walks a problem head by head, runs an algorithm on each, and hands over what
// it made. The caller decides the arithmetic and where results go.

#include <optional>

#include "kernels/attention.h"
#include "kernels/reference/head.h"

namespace attnd::reference {

// What to run on each head.
struct Choice {
  Algorithm algorithm = Algorithm::kNaive;  // not kAuto
  std::optional<DType> round_to;            // naive only; see naive.h
};

// One head's forward or backward; false: cancelled.
template <typename T>
bool RunForward(const Head<T>& head, const Choice& choice, HeadForward<T>& out);
template <typename T>
bool RunBackward(const Head<T>& head, const Choice& choice,
                 const HeadUpstream<T>& in, HeadGradients<T>& out);

// Reads what backward starts from for head h of sequence b; (E11) when O is
// given rather than delta.
template <typename T>
HeadUpstream<T> ReadUpstream(const BackwardArgs& args, int64_t b, int64_t h);

// Calls sink(b, h, const HeadForward<T>&) for every head; false: cancelled.
template <typename T, typename Sink>
bool ForwardHeads(const Problem& p, const Choice& choice, Sink sink) {
  if (p.q_len == 0 || p.q_heads == 0) return true;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      const Head<T> head(p, b, h);
      HeadForward<T> out{Matrix<T>(head.rows(), p.value_dim),
                         std::vector<T>(head.rows(), kMinusInf<T>)};
      if (!RunForward(head, choice, out) || !head.Proceed()) return false;
      sink(b, h, out);
    }
  }
  return true;
}

// Calls on_q(b, h, dq) for every query head, and on_kv(b, kv_head, dk, dv) for
// every K/V head, whose gradients sum over its group. All const Matrix<T>&.
template <typename T, typename OnQ, typename OnKv>
bool BackwardHeads(const BackwardArgs& args, const Choice& choice, OnQ on_q,
                   OnKv on_kv) {
  const Problem& p = args.problem;
  int64_t tokens = p.q_len;
  for (const KvSegment& s : p.kv) tokens += s.len;
  if (tokens == 0 || p.q_heads == 0) return true;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t rows = QLen(p, b), columns = KvLen(p, b);
    for (int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
      Matrix<T> dk(columns, p.head_dim), dv(columns, p.value_dim);
      for (int64_t h = kv_head * p.group(); h < (kv_head + 1) * p.group();
           ++h) {
        const Head<T> head(p, b, h);
        HeadGradients<T> out{Matrix<T>(rows, p.head_dim),
                             Matrix<T>(columns, p.head_dim),
                             Matrix<T>(columns, p.value_dim)};
        const HeadUpstream<T> in = ReadUpstream<T>(args, b, h);
        if (!RunBackward(head, choice, in, out) || !head.Proceed())
          return false;
        // (E17), (E18)
        for (int64_t i = 0; i < rows; ++i)
          Scale<T>(p.scale, p.head_dim, out.dq[i]);
        on_q(b, h, out.dq);
        for (int64_t j = 0; j < columns; ++j) {
          Axpy<T>(p.scale, out.dk[j], p.head_dim, dk[j]);
          Axpy<T>(1, out.dv[j], p.value_dim, dv[j]);
        }
      }
      on_kv(b, kv_head, dk, dv);
    }
  }
  return true;
}

}  // namespace attnd::reference

#endif  // ATTND_KERNELS_REFERENCE_DRIVE_H_
