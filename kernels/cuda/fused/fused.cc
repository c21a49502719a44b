#include "kernels/cuda/fused/fused.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/enqueue.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/pack.h"
#include "kernels/cuda/launch/wanted.h"
#include "kernels/cuda/sm80/config.h"
#include "kernels/cuda/sm80/decode_tiles.h"
#include "kernels/cuda/sm80/kernels.h"
#include "kernels/cuda/sm80/partials.h"
#include "kernels/cuda/sm90/kernels.h"
#include "kernels/cuda/sm90/tensor_maps.h"

namespace attnd::cuda {
namespace {

using sm80::DecodeAhead;
using sm80::DecodeTiles;
using sm80::FindKernel;
using sm80::Kind;
using sm80::RecordFloats;
using sm80::RoundedDim;

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

// The kernels for a group, with their tiles.
class Plan {
 public:
  Plan(absl::Span<const ForwardArgs> group, const Gpu& gpu) : gpu_(gpu) {
    blob_.Reserve(group.size() * kUsualBytes);
    for (const ForwardArgs& args : group) {
      if (IsWanted(args)) Add(args);
    }
    for (Launch& launch : launches_) launch.Place(blob_);
  }

  const std::vector<Launch>& launches() const { return launches_; }
  const std::vector<std::byte>& block() const { return blob_.bytes(); }

 private:
  // Of a problem with one segment, for one of Hopper's kernels.
  static constexpr size_t kUsualBytes =
      sizeof(DeviceProblem) + sizeof(DeviceSegment) +
      sm90::KMap(1) * sizeof(CUtensorMap) + sizeof(TileRun);

  void Add(const ForwardArgs& args) {
    const Problem& p = args.problem;
    const BlobOffset problem = blob_.Append(args);
    if (p.dtype() == DType::kF32) {
      AddRows(args, problem, Sm80(Kind::kFloat32, p));
      return;
    }
    const Kinds kinds = KindsOf(p);
    if (kinds.prefill && !AddHopper(args, problem)) {
      AddRows(args, problem, Sm80(Kind::kPrefill, p));
    }
    if (kinds.decode) {
      Launch& launch = LaunchOf(Sm80(Kind::kDecode, p));
      launch.Add(blob_, problem, DecodeTiles(p), {},
                 DecodeAhead(p, launch.kernel()));
    }
  }

  void AddRows(const ForwardArgs& args, BlobOffset problem,
               const Kernel& kernel) {
    LaunchOf(kernel).Add(blob_, problem, RowTiles(args.problem, kernel));
  }
  // Whether the problem can run in kernels for Hopper.
  bool AddHopper(const ForwardArgs& args, BlobOffset problem) {
    if (!gpu_.is_hopper()) return false;
    const Problem& p = args.problem;
    const auto kernels = sm90::FindForward(p);
    for (const Kernel* kernel : kernels) {
      const auto maps = sm90::MakeTensorMaps(args, kernel->cols);
      // What one kernel cannot read none can.
      if (!maps.has_value()) return false;
      const BlobOffset at = blob_.Append(absl::MakeConstSpan(maps->maps));
      LaunchOf(*kernel).Add(blob_, problem, RowTiles(p, *kernel),
                            {.maps = at, .has_o_map = maps->has_o});
    }
    return !kernels.empty();
  }

  static const Kernel& Sm80(Kind kind, const Problem& p) {
    return FindKernel(kind, p.dtype(), p.head_dim, p.value_dim);
  }
  Launch& LaunchOf(const Kernel& kernel) {
    for (Launch& launch : launches_) {
      if (&launch.kernel() == &kernel) return launch;
    }
    return launches_.emplace_back(kernel);
  }

  const Gpu gpu_;
  Blob blob_;
  std::vector<Launch> launches_;
};

// Scratch for partial results, which one launch has, and counters. All launches
// use the same ones: each leaves them 0.
absl::Status TakeScratch(const std::vector<Launch>& launches,
                         Workspace& workspace, LaunchParams& params) {
  int64_t floats = 0, count = 0;
  for (const Launch& launch : launches) {
    floats =
        std::max(floats, launch.records() * RecordFloats(launch.kernel().dim));
    count = std::max(count, launch.counters());
  }
  if (floats > 0) {
    auto scratch =
        workspace.Scratch(floats * static_cast<int64_t>(sizeof(float)));
    if (!scratch.ok()) return scratch.status();
    params.scratch = reinterpret_cast<float*>(*scratch);
  }
  if (count > 0) {
    auto counters = workspace.Counters(count);
    if (!counters.ok()) return counters.status();
    params.counters = *counters;
  }
  return absl::OkStatus();
}

// Everything that may fail for want of memory comes before the first launch.
absl::Status EnqueueChunk(absl::Span<const ForwardArgs> group,
                          const FusedOptions& options, const Gpu& gpu,
                          Workspace& workspace, LaunchCounts& counts) {
  const Plan plan(group, options.any_gpu ? AsAnyGpu(gpu) : gpu);
  LaunchParams params;
  absl::Status status = Prepare(plan.launches());
  if (status.ok()) status = TakeScratch(plan.launches(), workspace, params);
  if (status.ok()) {
    status = PlaceBlock(plan.block(), workspace, params, counts);
  }
  if (!status.ok()) return status;
  return Enqueue(plan.launches(), params, gpu, workspace.stream(), counts);
}

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueFused(absl::Span<const ForwardArgs> group,
                                          Workspace& workspace,
                                          const FusedOptions& options) {
  absl::StatusOr<Gpu> gpu = CurrentGpu();
  if (!gpu.ok()) return gpu.status();
  LaunchCounts counts;
  while (!group.empty()) {
    const absl::Span<const ForwardArgs> chunk = FirstChunk(group);
    absl::Status status = EnqueueChunk(chunk, options, *gpu, workspace, counts);
    if (!status.ok()) return status;
    group.remove_prefix(chunk.size());
  }
  return counts;
}

KernelInfo FusedKernel(const Problem& p, const Gpu& gpu) {
  const Kernel* kernel = nullptr;
  if (gpu.is_hopper() && !IsDecode(p.q_len)) {
    const auto kernels = sm90::FindForward(p);
    if (!kernels.empty()) kernel = kernels.back();
  }
  if (kernel == nullptr) {
    const Kind kind = p.dtype() == DType::kF32 ? Kind::kFloat32
                      : IsDecode(p.q_len)      ? Kind::kDecode
                                               : Kind::kPrefill;
    kernel = &FindKernel(kind, p.dtype(), p.head_dim, p.value_dim);
  }
  return {Algorithm::kFlashAttention2, kernel->name};
}

int64_t FusedScratchBytes(const Problem& p) { return RecordBytes(p); }

}  // namespace attnd::cuda
