#include "kernels/cuda/forward.h"

namespace attnd::cuda {

absl::StatusOr<LaunchCounts> EnqueueForward(absl::Span<const ForwardArgs>, Algorithm,
                                            Workspace&) {
  return absl::UnimplementedError("TODO");
}
absl::Status SupportsForward(const Problem&, Algorithm) { return absl::OkStatus(); }
KernelInfo ForwardKernel(const Problem&, Algorithm) { return {}; }
int64_t ForwardScratchBytes(const Problem&, Algorithm) { return 0; }

}  // namespace attnd::cuda
