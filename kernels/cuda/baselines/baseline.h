#ifndef ATTND_KERNELS_CUDA_BASELINES_BASELINE_H_
#define ATTND_KERNELS_CUDA_BASELINES_BASELINE_H_

// What the host sides of naive/ and flash_attention_1/ share: they run a
// group's problems one after another, with all of their descriptors in one
// block.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/enqueue.h"

namespace attnd::cuda {

// The group on the device. `scratch` is for one problem at a time, as large as
// the largest needs.
struct BaselineGroup {
  LaunchParams params;               // the block alone
  std::vector<BlobOffset> problems;  // DeviceProblem of each of the group
  // DeviceGradients of each, in backward.
  std::vector<BlobOffset> gradients;
  std::byte* scratch = nullptr;
};

// Packs the group and takes its scratch; counts a copy if there is one.
// RESOURCE_EXHAUSTED when there is no memory now.
absl::Status PlaceBaselineGroup(
    absl::Span<const ForwardArgs> group,
    const std::function<int64_t(const Problem&)>& scratch_bytes,
    Workspace& workspace, BaselineGroup& placed, LaunchCounts& counts);
absl::Status PlaceBaselineGroup(
    absl::Span<const BackwardArgs> group,
    const std::function<int64_t(const Problem&)>& scratch_bytes,
    Workspace& workspace, BaselineGroup& placed, LaunchCounts& counts);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_BASELINE_H_
