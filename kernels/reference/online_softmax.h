#ifndef ATTND_KERNELS_REFERENCE_ONLINE_SOFTMAX_H_
#define ATTND_KERNELS_REFERENCE_ONLINE_SOFTMAX_H_

// Softmax whose maximum and sum come from one pass (Milakov & Gimelshein), and
// what follows from it: attention in one pass over the columns of a row, with
// memory for one row of O (Rabe & Staats).

#include <cmath>

#include "kernels/reference/head.h"

namespace attnd::reference {

// The running state of one row: (E8).
template <typename T>
struct SoftmaxState {
  T m = kMinusInf<T>;
  T l = 0;

  // Takes in one more score, and gives the factor by which everything summed
  // so far must shrink. While no score is above -inf there is nothing to
  // shrink, and exp(-inf + inf) would be NaN.
  T Update(T score) {
    const T previous = m;
    m = MaxOrNan(m, score);
    if (m == kMinusInf<T>) return 1;
    const T shrink = std::exp(previous - m);
    l = l * shrink + std::exp(score - m);
    return shrink;
  }
  T Weight(T score) const {
    return m == kMinusInf<T> ? T{0} : std::exp(score - m);
  }
  T Lse() const { return m == kMinusInf<T> ? m : m + std::log(l); }  // (E7)
};

// Replaces `row` by its softmax in two passes, and gives its LSE.
template <typename T>
T SoftmaxTwoPass(int64_t n, T* row);

// False: cancelled.
template <typename T>
bool OnlineSoftmaxForward(const Head<T>& head, HeadForward<T>& out);
// A row at a time too: LSE gives P back (E12) without a pass to find it.
template <typename T>
bool OnlineSoftmaxBackward(const Head<T>& head, const HeadUpstream<T>& in,
                           HeadGradients<T>& out);

}  // namespace attnd::reference

#endif  // ATTND_KERNELS_REFERENCE_ONLINE_SOFTMAX_H_
