#ifndef ATTND_KERNELS_CUDA_SM90_KERNELS_H_
#define ATTND_KERNELS_CUDA_SM90_KERNELS_H_

// The compiled kernels for Hopper, one translation unit each (see
// instance.cu.in).

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "kernels/attention.h"
#include "kernels/cuda/launch/kernel.h"

namespace attnd::cuda::sm90 {

// The compute capability, times ten, of the only GPUs that have these
// instructions.
inline constexpr int kCapability = 90;

// A problem of more segments goes elsewhere: each takes two tensor maps.
inline constexpr size_t kMostSegments = 64;

// Defined by the instances.
template <DType kDType, int kDim, int kValueDim, int64_t kFrom>
Kernel MakeForward();

// Defined by the instances.
template <DType kDType, int kDim, int kValueDim>
Kernel MakeBackward();

// What the kernels for backward find out of a launch's tiles before they run.
const Kernel& PlanColumnsKernel();

// The kernel for backward of the problem, or null if sm80's runs it. Looks at
// shapes, types and scores only.
const Kernel* FindBackward(const Problem& problem);

// The kernels for the problem's sequences that are not decoded, each of which
// one of them takes; none if sm80 does. Looks at shapes, lengths and types
// only.
absl::InlinedVector<const Kernel*, 2> FindForward(const Problem& problem);

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_KERNELS_H_
