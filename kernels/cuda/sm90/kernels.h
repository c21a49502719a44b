#ifndef ATTND_KERNELS_CUDA_SM90_KERNELS_H_
#define ATTND_KERNELS_CUDA_SM90_KERNELS_H_

// The compiled kernels for Hopper, those of both types together (see
// instance.cu.in).

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "kernels/attention.h"
#include "kernels/cuda/launch/kernel.h"

namespace attnd::cuda::sm90 {

// A problem of more segments runs in sm80: each segment takes two tensor maps.
inline constexpr size_t kMostSegments = 64;

// Defined by the instances, one for each of kForwardShapes.
template <DType kDType, int kDim, int kValueDim, int64_t kFrom>
Kernel MakeForward();

// Defined by the instances, one for each of kBackwardShapes.
template <DType kDType, int kDim, int kValueDim>
Kernel MakeBackward();

// The kernel that runs before each launch of a backward kernel, and writes down
// what that needs to know of its tiles (backward/plan_columns.cu).
const Kernel& PlanColumnsKernel();

// The kernel for backward of the problem, or null if sm80's must run it.
// Shapes, types and scores decide; how memory is aligned, MakeBackwardMaps
// finds out.
const Kernel* FindBackward(const Problem& problem);

// The kernels for those of the problem's sequences that are not decoded: each
// sequence is taken by exactly one. None if sm80 must run them. Shapes, lengths
// and types decide; how memory is aligned, MakeTensorMaps finds out.
absl::InlinedVector<const Kernel*, 2> FindForward(const Problem& problem);
// The fewest columns with which that kernel is still the one for a part of the
// problem, which is one sequence.
int64_t LeastColumns(const Problem& problem);

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_KERNELS_H_
