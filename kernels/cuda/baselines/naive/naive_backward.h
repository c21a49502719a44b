#ifndef ATTND_KERNELS_CUDA_BASELINES_NAIVE_NAIVE_BACKWARD_H_
#define ATTND_KERNELS_CUDA_BASELINES_NAIVE_NAIVE_BACKWARD_H_

// Backward as it is defined, with matrices of batch x q_heads x q_len x kv_len
// elements in memory: what others are measured against, in time and in memory.
// The equations are numbered in kernels/README.md. The tables say which of such
// matrices a step reads and writes, and which are live in it.
//
// In the mathematical order each is made once and goes when it has been read:
//
//   step                                    reads   writes  live
//   1  QK = Q K^T          (E1)             -       QK      QK
//   2  P = exp(S - LSE)    (E2), (E12)      QK      P       QK P
//   3  dV = P^T dO         (E13)            P       -       QK P
//   4  dP = dO V^T         (E14)            -       dP      QK dP
//   5  delta               (E11)            -       -       QK dP
//   6  dX = P (dP - delta) (E15), (E16)     QK dP   dX      QK dP dX
//   7  dQ = scale dX K     (E17)            dX      -       dX
//   8  dK = scale dX^T Q   (E18)            dX      -       dX
//
// P and dX are in the inputs' type, the others f32. Step 6 finds P again from
// QK, since rounded P is not exact enough for dX. If the inputs are f32, P, dP
// and dX take turns in one place: two matrices in all; else P and dX do: two
// and a half.
//
// Autograd goes back over forward's steps (see naive.h), an operation at a
// time, each of which makes a new matrix. What a step of forward has read stays
// until backward has passed that step; E, which exp's own gradient is made of,
// until it has passed exp:
//
//   step                                    reads   writes  live
//   1  QK = Q K^T          (E1)             -       QK      QK
//   2  S = scale QK        (E1), (E2)       QK      S       QK S
//   3  m = row max S       (E3)             S       -       QK S
//   4  D = S - m           (E4)             S       D       QK S D
//   5  E = exp D           (E4)             D       E       QK S D E
//   6  l = exp(LSE - m)    (E7), (E11)      -       -       QK S D E
//   7  P = E / l           (E5)             E       P       QK S D E P
//   8' dP = dO V^T         (E14)            -       dP      QK S D E P dP
//      dV = P^T dO         (E13)            P       -       QK S D E P dP
//   7' dE = dP / l                          dP      dE      QK S D E dP dE
//   6' dE += dl                             dE      dE      QK S D E dE
//   5' dD = dE E                            dE E    dD      QK S D E dE dD
//   4' dS is dD                             -       -       QK S dD
//   2' dX from dS          (E16)            dD      dX      QK dD dX
//   1' dQ = scale dX K     (E17)            dX      -       dX
//      dK = scale dX^T Q   (E18)            dX      -       dX
//
// Six at the most: the five that forward writes and the first gradient, then
// four of these and two gradients. Each has space for f32. A softcap makes step
// 2' read QK too.
//
// Where forward would sum over a row, LSE and delta stand for the sum, since
// there may be more columns than these: l is found from LSE, and
// dl = -sum_j dP_ij E_ij / l^2 is -(delta - dLSE) / l. Nothing goes back
// through step 3: P does not depend on m.
//
// PyTorch comes to six over the same steps too, but not the same six. Its
// formulas need only E and P of what forward has made, and P goes first. Then
// it sums dl from the product of -dP and (E / l) / l: these two, the product,
// E / l, E and dP are live, if the program has no name for any other.
//
// dX lacks the factor `scale`: sums are multiplied by it, so that dX in f16
// loses nothing by it. Gradients that nobody wants are not computed.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/launch/enqueue.h"
#include "kernels/cuda/launch/rest.h"

namespace attnd::cuda {

enum class NaiveOrder { kMathematical, kAutograd };

struct NaiveBackwardOptions {
  bool use_cublas = true;  // as NaiveOptions has it
  NaiveOrder order = NaiveOrder::kMathematical;
  // A result's bits depend on its own sequence alone. Products are never by
  // cuBLAS, whose sums depend on how many there are.
  bool deterministic = false;
};

// As EnqueueBackward, for kNaive: problem after problem. A problem costs at
// least eight launches, fifteen in autograd's order. Products add to them as in
// forward; so do q heads that share a K/V head, if they do not lie one after
// another or are f32, and results that are summed up in f32 before they are
// rounded.
absl::StatusOr<LaunchCounts> EnqueueNaiveBackward(
    absl::Span<const BackwardArgs> group, Workspace& workspace,
    const NaiveBackwardOptions& options = {});

// The same, as BeginNaive.
absl::StatusOr<std::unique_ptr<Rest>> BeginNaiveBackward(
    absl::Span<const BackwardArgs> group, const Gpu& gpu, Workspace& workspace,
    const SliceOptions& slices, const NaiveBackwardOptions& options = {});

// The matrices that are live at once, and what is small beside them. Saturates.
// cuBLAS keeps 32 MiB per stream beside this.
int64_t NaiveBackwardScratchBytes(const Problem& problem, NaiveOrder order);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_NAIVE_NAIVE_BACKWARD_H_
