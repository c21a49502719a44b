#include "kernels/cuda/fused/chunks.h"

#include <algorithm>

namespace attnd::cuda {

Launch& Chunk::LaunchOf(const Kernel& kernel) {
  for (Launch& launch : launches) {
    if (&launch.kernel() == &kernel) return launch;
  }
  return launches.emplace_back(kernel);
}

absl::Status PrepareChunks(absl::Span<const Chunk> chunks,
                           Workspace& workspace) {
  int64_t scratch = 0, counters = 0;
  std::vector<int64_t> blocks;
  for (const Chunk& chunk : chunks) {
    absl::Status status = Prepare(chunk.launches);
    if (!status.ok()) return status;
    scratch = std::max(scratch, chunk.scratch_bytes);
    counters = std::max(counters, chunk.counters);
    const std::vector<std::byte>& block = chunk.blob.bytes();
    if (status = CheckBlock(block); !status.ok()) return status;
    if (block.size() > kInlineBytes) blocks.push_back(block.size());
  }
  absl::Status status = workspace.ReserveCopies(blocks);
  if (status.ok() && scratch > 0) status = workspace.Scratch(scratch).status();
  if (status.ok() && counters > 0) {
    status = workspace.Counters(counters).status();
  }
  return status;
}

absl::Status BeginChunk(const Chunk& chunk, Workspace& workspace,
                        LaunchParams& params, LaunchCounts& counts) {
  params.in_turns = chunk.in_turns;
  if (chunk.scratch_bytes > 0) {
    auto scratch = workspace.Scratch(chunk.scratch_bytes);
    if (!scratch.ok()) return scratch.status();
    params.scratch = reinterpret_cast<float*>(*scratch);
  }
  if (chunk.counters > 0) {
    auto counters = workspace.Counters(chunk.counters);
    if (!counters.ok()) return counters.status();
    params.counters = *counters;
  }
  return PlaceBlock(chunk.blob.bytes(), workspace, params, counts);
}

absl::StatusOr<LaunchCounts> EnqueueChunks(absl::Span<const Chunk> chunks,
                                           const Gpu& gpu,
                                           Workspace& workspace) {
  absl::Status status = PrepareChunks(chunks, workspace);
  LaunchCounts counts;
  for (const Chunk& chunk : chunks) {
    LaunchParams params;
    if (status.ok()) status = BeginChunk(chunk, workspace, params, counts);
    if (status.ok()) {
      status = Enqueue(chunk.launches, params, gpu, workspace.stream(), counts);
    }
  }
  if (!status.ok()) return status;
  return counts;
}

}  // namespace attnd::cuda
