#include "kernels/cuda/baseline.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cuda/pack.h"

namespace attnd::cuda {

int64_t Saturate(double bytes) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return bytes < static_cast<double>(kMost) ? static_cast<int64_t>(bytes)
                                            : kMost;
}

absl::Status PlaceBaselineGroup(
    absl::Span<const ForwardArgs> group,
    const std::function<int64_t(const Problem&)>& scratch_bytes,
    Workspace& workspace, BaselineGroup& placed, LaunchCounts& counts) {
  Blob blob;
  int64_t bytes = 0;
  for (const ForwardArgs& args : group) {
    // One without rows may have more sequences than arrays.
    placed.problems.push_back(HasOutput(args) ? blob.Append(args) : 0);
    if (HasOutput(args)) bytes = std::max(bytes, scratch_bytes(args.problem));
  }
  if (bytes == std::numeric_limits<int64_t>::max())
    return absl::ResourceExhaustedError("more scratch than any device has");
  absl::StatusOr<std::byte*> scratch = workspace.Scratch(bytes);
  if (!scratch.ok()) return scratch.status();
  placed.scratch = *scratch;
  const std::vector<std::byte>& block = blob.bytes();
  if (block.size() <= kInlineBytes) {
    std::memcpy(placed.params.inline_blob, block.data(), block.size());
    return absl::OkStatus();
  }
  absl::StatusOr<const std::byte*> copy = workspace.CopyToDevice(block);
  if (!copy.ok()) return copy.status();
  placed.params.blob = *copy;
  ++counts.copies;
  return absl::OkStatus();
}

}  // namespace attnd::cuda
