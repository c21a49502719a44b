#include "kernels/cuda/baselines/baseline.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/launch/gradient.h"
#include "kernels/cuda/launch/pack.h"
#include "kernels/cuda/launch/wanted.h"

namespace attnd::cuda {
namespace {

void Describe(const ForwardArgs& args, Blob& blob, BaselineGroup& placed) {
  placed.problems.push_back(blob.Append(args));
}
void Describe(const BackwardArgs& args, Blob& blob, BaselineGroup& placed) {
  placed.problems.push_back(blob.Append(ForwardArgs{args.problem, {}, {}}));
  placed.gradients.push_back(blob.Append(args, DeviceGradients()));
}

// One without outputs may have more sequences than arrays.
void Skip(BaselineGroup& placed) {
  placed.problems.push_back(0);
  placed.gradients.push_back(0);
}

template <class Args>
absl::Status Place(absl::Span<const Args> group,
                   const std::function<int64_t(const Problem&)>& scratch_bytes,
                   Workspace& workspace, BaselineGroup& placed,
                   LaunchCounts& counts) {
  Blob blob;
  int64_t bytes = 0;
  for (const Args& args : group) {
    if (!HasOutput(args)) {
      Skip(placed);
      continue;
    }
    Describe(args, blob, placed);
    bytes = std::max(bytes, scratch_bytes(args.problem));
  }
  if (bytes == std::numeric_limits<int64_t>::max())
    return absl::ResourceExhaustedError("more scratch than any device has");
  absl::StatusOr<std::byte*> scratch = workspace.Scratch(bytes);
  if (!scratch.ok()) return scratch.status();
  placed.scratch = *scratch;
  return PlaceBlock(blob.bytes(), workspace, placed.params, counts);
}

}  // namespace

absl::Status PlaceBaselineGroup(
    absl::Span<const ForwardArgs> group,
    const std::function<int64_t(const Problem&)>& scratch_bytes,
    Workspace& workspace, BaselineGroup& placed, LaunchCounts& counts) {
  return Place(group, scratch_bytes, workspace, placed, counts);
}

absl::Status PlaceBaselineGroup(
    absl::Span<const BackwardArgs> group,
    const std::function<int64_t(const Problem&)>& scratch_bytes,
    Workspace& workspace, BaselineGroup& placed, LaunchCounts& counts) {
  return Place(group, scratch_bytes, workspace, placed, counts);
}

}  // namespace attnd::cuda
