#ifndef ATTND_KERNELS_REFERENCE_NAIVE_H_
#define ATTND_KERNELS_REFERENCE_NAIVE_H_

// Attention as it is defined: S, then P, then O, each a whole matrix. Memory
// and traffic are q_len * kv_len, which is what all the others avoid.
//
// In float with `round_to` = the inputs' type this is the plain computation
// that accuracy is judged by: P, and dS in backward, are rounded before the
// next product. In double without it, it is the oracle.

#include <optional>

#include "kernels/reference/head.h"

namespace attnd::reference {

// Replaces each row of scores by its softmax in three passes, (E3)-(E5), and
// gives its LSE (E7). A row of -inf becomes 0, with LSE -inf.
template <typename T>
T SoftmaxThreePass(int64_t n, T* row);

// False: cancelled.
template <typename T>
bool NaiveForward(const Head<T>& head, std::optional<DType> round_to,
                  HeadForward<T>& out);
template <typename T>
bool NaiveBackward(const Head<T>& head, std::optional<DType> round_to,
                   const HeadUpstream<T>& in, HeadGradients<T>& out);

}  // namespace attnd::reference

#endif  // ATTND_KERNELS_REFERENCE_NAIVE_H_
