#include "kernels/cuda/launch/enqueue.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// Starts a kernel's blocks: in clusters of two if the kernel needs them, and on
// a Hopper also if it merely gains by having blocks near each other.
absl::Status Start(const Kernel& kernel, unsigned blocks, void** arguments,
                   const Gpu& gpu, cudaStream_t stream) {
  cudaLaunchAttribute pairs{};
  pairs.id = cudaLaunchAttributeClusterDimension;
  pairs.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kernel.threads);
  config.dynamicSmemBytes = kernel.shared_bytes;
  config.stream = stream;
  config.attrs = &pairs;
  config.numAttrs = kernel.cluster == 2 ||
                    (kernel.paired && gpu.is_hopper() && blocks % 2 == 0);
  return ToStatus(cudaLaunchKernelExC(&config, kernel.function, arguments),
                  kernel.name);
}

}  // namespace

absl::Status Prepare(absl::Span<const Launch> launches) {
  for (const Launch& launch : launches) {
    const Kernel& kernel = launch.kernel();
    absl::Status status = ToStatus(
        cudaFuncSetAttribute(kernel.function,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kernel.shared_bytes),
        kernel.name);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckBlock(const std::vector<std::byte>& block) {
  if (block.size() <= std::numeric_limits<BlobOffset>::max()) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("a group takes ", block.size(), " bytes to describe"));
}

absl::Status PlaceBlock(const std::vector<std::byte>& block,
                        Workspace& workspace, LaunchParams& params,
                        LaunchCounts& counts) {
  if (absl::Status status = CheckBlock(block); !status.ok()) return status;
  if (block.size() <= kInlineBytes) {
    std::memcpy(params.inline_blob, block.data(), block.size());
    return absl::OkStatus();
  }
  auto copied = workspace.CopyToDevice(block);
  if (!copied.ok()) return copied.status();
  params.blob = *copied;
  ++counts.copies;
  return absl::OkStatus();
}

absl::Status EnqueueTiles(const Launch& launch, int64_t first, int64_t end,
                          LaunchParams& params, const Gpu& gpu,
                          cudaStream_t stream, LaunchCounts& counts) {
  const Kernel& kernel = launch.kernel();
  const int64_t most_tiles =
      std::numeric_limits<int32_t>::max() / kernel.cluster;
  params.runs = launch.runs();
  params.num_runs = launch.num_runs();
  params.first_run = launch.first_run();
  params.ahead = launch.ahead();
  params.plans_at = launch.plans_at();
  for (; first < end; first += most_tiles) {
    params.first_tile = first;
    const int64_t tiles = std::min(end - first, most_tiles);
    params.num_tiles = static_cast<uint32_t>(tiles);
    const int64_t clusters =
        kernel.persistent
            ? std::min<int64_t>(tiles, gpu.multiprocessors / kernel.cluster)
            : tiles;
    const auto blocks = static_cast<unsigned>(clusters * kernel.cluster);
    void* arguments[] = {&params};
    absl::Status status = Start(kernel, blocks, arguments, gpu, stream);
    if (!status.ok()) return status;
    ++counts.kernels;
  }
  return absl::OkStatus();
}

absl::Status Enqueue(absl::Span<const Launch> launches, LaunchParams& params,
                     const Gpu& gpu, cudaStream_t stream,
                     LaunchCounts& counts) {
  for (const Launch& launch : launches) {
    absl::Status status =
        EnqueueTiles(launch, 0, launch.tiles(), params, gpu, stream, counts);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace attnd::cuda
