#ifndef ATTND_KERNELS_CUDA_CAPI_CAPI_PROBLEM_H_
#define ATTND_KERNELS_CUDA_CAPI_CAPI_PROBLEM_H_

// The problems of the C interface as the contract has them.

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/cuda/capi/capi.h"

namespace attnd::cuda {

// INVALID_ARGUMENT that says what is wrong with it.
absl::Status Check(const AttndForwardProblem& problem);
absl::Status Check(const AttndBackwardProblem& problem);

// K and V, with their gradients' memory if they have any.
KvSegment MakeSegment(const AttndForwardProblem& problem);
KvSegment MakeSegment(const AttndBackwardProblem& problem);

// Of a valid problem with its segment, which must outlive the result.
ForwardArgs MakeArgs(const AttndForwardProblem& problem,
                     const KvSegment& segment);
BackwardArgs MakeArgs(const AttndBackwardProblem& problem,
                      const KvSegment& segment);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_CAPI_CAPI_PROBLEM_H_
