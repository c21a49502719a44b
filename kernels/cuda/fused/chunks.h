#ifndef ATTND_KERNELS_CUDA_FUSED_CHUNKS_H_
#define ATTND_KERNELS_CUDA_FUSED_CHUNKS_H_

// What the fused forward and backward share: a group is cut into chunks, and
// the problems of a chunk share launches.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/launch/enqueue.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/pack.h"

namespace attnd::cuda {

// The problems of a chunk take no more scratch than this together, unless the
// chunk is one problem alone: a stream may have as much without anyone being
// charged for it.
inline constexpr int64_t kSharedScratchBytes = int64_t{64} << 20;

// Cuts `problems` into chunks, in order, and calls run(chunk) for each.
// scratch_bytes(problem) is what a problem takes at most.
template <class T, class ScratchBytes, class Run>
void ForEachChunk(absl::Span<const T> problems,
                  const ScratchBytes& scratch_bytes, const Run& run) {
  while (!problems.empty()) {
    int64_t bytes = 0;
    size_t count = 0;
    for (const T& problem : problems) {
      bytes += scratch_bytes(problem);
      if (count > 0 && bytes > kSharedScratchBytes) break;
      ++count;
    }
    run(problems.first(count));
    problems.remove_prefix(count);
  }
}

// The launches of a chunk, and the memory that they need beside tensors.
struct Chunk {
  Blob blob;                     // what kernels read of the problems
  std::vector<Launch> launches;  // in the order in which they must run
  // The launches run one after another and share both.
  int64_t scratch_bytes = 0;
  int64_t counters = 0;
  bool in_turns = false;  // see LaunchParams

  // The launch of `kernel`, a new one at the end if there is none yet. Valid
  // until the next new one.
  Launch& LaunchOf(const Kernel& kernel);
};

// Of most groups one.
using Chunks = absl::InlinedVector<Chunk, 1>;

// Enqueues the chunks' launches on the workspace's stream, and counts them. All
// memory is taken before the first launch, so that RESOURCE_EXHAUSTED means
// that none was enqueued. INTERNAL: the device is broken.
absl::StatusOr<LaunchCounts> EnqueueChunks(absl::Span<const Chunk> chunks,
                                           const Gpu& gpu,
                                           Workspace& workspace);

// The steps of it, for whoever does not enqueue all at once. First all that may
// fail for want of memory: loads the kernels, and takes the chunks' memory.
absl::Status PrepareChunks(absl::Span<const Chunk> chunks,
                           Workspace& workspace);
// Then, chunk by chunk, gives `params` what its launches share.
absl::Status BeginChunk(const Chunk& chunk, Workspace& workspace,
                        LaunchParams& params, LaunchCounts& counts);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_FUSED_CHUNKS_H_
