#include "kernels/cuda/sm80/forward.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/descriptor.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/sm80/config.h"
#include "kernels/cuda/sm80/kernels.h"
#include "kernels/cuda/sm80/partials.h"
#include "kernels/cuda/sm80/plan.h"
#include "kernels/cuda/status.h"

namespace attnd::cuda::sm80 {
namespace {

// Problems share launches as long as their partial results take no more than
// this, or than one of them alone does: what a stream's scratch is without
// being charged to anyone.
constexpr int64_t kSharedScratchBytes = int64_t{64} << 20;

int64_t RecordBytes(const Problem& p) {
  if (p.dtype() == DType::kF32 || !KindsOf(p).decode) return 0;
  return DecodeTiles(p).records() *
         RecordFloats(RoundedDim(p.head_dim, p.value_dim)) *
         static_cast<int64_t>(sizeof(float));
}

bool HasOutputs(const ForwardArgs& args) {
  const Problem& p = args.problem;
  return p.batch > 0 && p.q_heads > 0 && p.q_len > 0 && (args.o || args.lse) &&
         (p.cancel == nullptr || !p.cancel->cancelled());
}

// The first problems of the group that one set of launches takes.
absl::Span<const ForwardArgs> FirstChunk(absl::Span<const ForwardArgs> group) {
  int64_t bytes = 0;
  size_t count = 0;
  for (const ForwardArgs& args : group) {
    bytes += RecordBytes(args.problem);
    if (count > 0 && bytes > kSharedScratchBytes) break;
    ++count;
  }
  return group.first(count);
}

// The kernels for a group, with their tiles; the second is decode's.
std::vector<Launch> Plan(absl::Span<const ForwardArgs> group, Blob& blob) {
  const Problem& any = group.front().problem;
  const auto kernel = [&](Kind kind) -> const Kernel& {
    return FindKernel(kind, any.dtype(), any.head_dim, any.value_dim);
  };
  const bool f32 = any.dtype() == DType::kF32;
  std::vector<Launch> launches;
  launches.emplace_back(kernel(f32 ? Kind::kFloat32 : Kind::kPrefill));
  if (!f32) launches.emplace_back(kernel(Kind::kDecode));
  for (const ForwardArgs& args : group) {
    if (!HasOutputs(args)) continue;
    const BlobOffset problem = blob.Append(args);
    const Kinds kinds = KindsOf(args.problem);
    if (f32 || kinds.prefill) {
      launches[0].Add(blob, problem,
                      RowTiles(args.problem, launches[0].kernel()));
    }
    if (!f32 && kinds.decode) {
      launches[1].Add(blob, problem, DecodeTiles(args.problem));
    }
  }
  for (Launch& launch : launches) launch.Place(blob);
  return launches;
}

// Scratch and counters for the launch's partial results.
absl::Status TakeScratch(const Launch& launch, Workspace& workspace,
                         LaunchParams& params) {
  if (launch.records() == 0) return absl::OkStatus();
  auto scratch =
      workspace.Scratch(launch.records() * RecordFloats(launch.kernel().dim) *
                        static_cast<int64_t>(sizeof(float)));
  if (!scratch.ok()) return scratch.status();
  params.scratch = reinterpret_cast<float*>(*scratch);
  auto counters = workspace.Counters(launch.counters());
  if (!counters.ok()) return counters.status();
  params.counters = *counters;
  return absl::OkStatus();
}

// Puts the block where kernels find it.
absl::Status PlaceBlock(const std::vector<std::byte>& block,
                        Workspace& workspace, LaunchParams& params,
                        LaunchCounts& counts) {
  if (block.size() > std::numeric_limits<BlobOffset>::max()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a group takes ", block.size(), " bytes to describe"));
  }
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

// Loads the kernel, if it is not, and allows it the shared memory it takes.
absl::Status Prepare(const Kernel& kernel) {
  return ToStatus(
      cudaFuncSetAttribute(kernel.function,
                           cudaFuncAttributeMaxDynamicSharedMemorySize,
                           kernel.shared_bytes),
      kernel.name);
}

absl::Status Enqueue(const Launch& launch, LaunchParams params,
                     cudaStream_t stream, LaunchCounts& counts) {
  constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();
  const Kernel& kernel = launch.kernel();
  params.runs = launch.runs();
  params.num_runs = launch.num_runs();
  for (int64_t first = 0; first < launch.tiles(); first += kMostBlocks) {
    params.first_tile = first;
    const auto blocks =
        static_cast<unsigned>(std::min(launch.tiles() - first, kMostBlocks));
    void* arguments[] = {&params};
    absl::Status status = ToStatus(
        cudaLaunchKernel(kernel.function, dim3(blocks), dim3(kernel.threads),
                         arguments, kernel.shared_bytes, stream),
        kernel.name);
    if (!status.ok()) return status;
    ++counts.kernels;
  }
  return absl::OkStatus();
}

// Everything that may fail for want of memory comes before the first launch.
absl::Status EnqueueChunk(absl::Span<const ForwardArgs> group,
                          Workspace& workspace, LaunchCounts& counts) {
  Blob blob;
  const std::vector<Launch> launches = Plan(group, blob);
  LaunchParams params;
  for (const Launch& launch : launches) {
    if (launch.tiles() == 0) continue;
    absl::Status status = Prepare(launch.kernel());
    if (status.ok()) status = TakeScratch(launch, workspace, params);
    if (!status.ok()) return status;
  }
  absl::Status status = PlaceBlock(blob.bytes(), workspace, params, counts);
  for (const Launch& launch : launches) {
    if (!status.ok()) return status;
    status = Enqueue(launch, params, workspace.stream(), counts);
  }
  return status;
}

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueForward(absl::Span<const ForwardArgs> group,
                                            Workspace& workspace) {
  LaunchCounts counts;
  while (!group.empty()) {
    const absl::Span<const ForwardArgs> chunk = FirstChunk(group);
    absl::Status status = EnqueueChunk(chunk, workspace, counts);
    if (!status.ok()) return status;
    group.remove_prefix(chunk.size());
  }
  return counts;
}

KernelInfo ForwardKernel(const Problem& p) {
  const Kind kind = p.dtype() == DType::kF32 ? Kind::kFloat32
                    : IsDecode(p.q_len)      ? Kind::kDecode
                                             : Kind::kPrefill;
  return {Algorithm::kFlashAttention2,
          FindKernel(kind, p.dtype(), p.head_dim, p.value_dim).name};
}

int64_t ForwardScratchBytes(const Problem& p) { return RecordBytes(p); }

}  // namespace attnd::cuda::sm80
