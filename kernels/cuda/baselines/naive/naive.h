#ifndef ATTND_KERNELS_CUDA_BASELINES_NAIVE_NAIVE_H_
#define ATTND_KERNELS_CUDA_BASELINES_NAIVE_NAIVE_H_

// Attention as it is defined, with S and P in memory for all sequences and
// heads at once. Eight steps, each a kernel that reads its matrix and writes it
// back:
//
//   1  S = Q K^T       (E1), without the scale; a product of matrices
//   2  S = scale S     (E1), (E2): softcap, bias and mask too
//   3  m = row max S   (E3)
//   4  S = S - m       (E4)
//   5  S = exp S       (E4)
//   6  l = row sum S   (E4)
//   7  P = S / l       (E5), rounded to the inputs' type; LSE (E7)
//   8  O = P V         (E6); a product of matrices
//
// Before step 8 a whole matrix is read six times and written five times. What
// others are measured against, in time and in memory. The equations are
// numbered in kernels/README.md. naive_backward.h has backward.

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

struct NaiveOptions {
  // Multiply by cuBLAS where the machine has it and it takes the layout, by our
  // own plain kernel else; false: always by our own.
  bool use_cublas = true;
};

// As EnqueueForward, for kNaive: problem after problem. A problem costs at
// least eight launches; segments, sequences with lengths of their own, and
// heads that no single stride reaches add to the products' two. The first call
// on a workspace must not be captured in a graph.
absl::StatusOr<LaunchCounts> EnqueueNaive(absl::Span<const ForwardArgs> group,
                                          Workspace& workspace,
                                          const NaiveOptions& options = {});

// The same, of which only the first slice is enqueued if it takes long; returns
// the rest, null if there is none. The group must stay as long as the rest.
absl::StatusOr<std::unique_ptr<Rest>> BeginNaive(
    absl::Span<const ForwardArgs> group, const Gpu& gpu, Workspace& workspace,
    const SliceOptions& slices);

// S in f32 and P in the inputs' type, batch x q_heads x q_len x kv_len of each,
// and what is small beside them. Saturates. cuBLAS keeps 32 MiB per stream
// beside this.
int64_t NaiveScratchBytes(const Problem& problem);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_NAIVE_NAIVE_H_
