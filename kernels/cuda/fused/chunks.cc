#include "kernels/cuda/fused/chunks.h"

namespace attnd::cuda {
namespace {

// Gives `params` the chunk's memory: scratch, counters and descriptors.
absl::Status TakeMemory(const Chunk& chunk, Workspace& workspace,
                        LaunchParams& params, LaunchCounts& counts) {
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

}  // namespace

Launch& Chunk::LaunchOf(const Kernel& kernel) {
  for (Launch& launch : launches) {
    if (&launch.kernel() == &kernel) return launch;
  }
  return launches.emplace_back(kernel);
}

absl::Status EnqueueChunk(const Chunk& chunk, const Gpu& gpu,
                          Workspace& workspace, LaunchCounts& counts) {
  LaunchParams params;
  params.in_turns = chunk.in_turns;
  absl::Status status = Prepare(chunk.launches);
  if (status.ok()) status = TakeMemory(chunk, workspace, params, counts);
  if (!status.ok()) return status;
  return Enqueue(chunk.launches, params, gpu, workspace.stream(), counts);
}

}  // namespace attnd::cuda
