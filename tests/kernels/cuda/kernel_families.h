#ifndef ATTND_TESTS_KERNELS_CUDA_KERNEL_FAMILIES_H_
#define ATTND_TESTS_KERNELS_CUDA_KERNEL_FAMILIES_H_

// A problem for each kind of kernel that there is.

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_stream.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/gradient_problem.h"

namespace attnd::testing {

struct KernelFamily {
  std::string name;
  DenseShape shape;
  GroupOptions options = {};
  bool any_gpu = false;  // without the kernels that Hopper alone has
  float softcap = 0;     // 0: none. With one, scores are not plain
};
std::vector<KernelFamily> ForwardFamilies();
std::vector<KernelFamily> BackwardFamilies();
// With a problem that takes a GPU some time.
KernelFamily Larger(KernelFamily family);
std::ostream& operator<<(std::ostream& out, const KernelFamily& family);
// For the names of tests.
std::string NameOf(const ::testing::TestParamInfo<KernelFamily>& info);

// The family's problem; of backward without what forward gives (Solve).
std::unique_ptr<DenseProblem> ForwardOf(const KernelFamily& family);
std::unique_ptr<GradientProblem> BackwardOf(const KernelFamily& family);

// A stream on device `device` that chooses the family's kernels.
absl::StatusOr<std::unique_ptr<cuda::CudaStream>> StreamOf(
    const KernelFamily& family, int device);

// Enqueues a group of one, whose memory is the device's.
absl::Status Enqueue(const ForwardArgs& args, const GroupOptions& options,
                     Stream& stream);
absl::Status Enqueue(const BackwardArgs& args, const GroupOptions& options,
                     Stream& stream);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_KERNEL_FAMILIES_H_
