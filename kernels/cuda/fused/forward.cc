#include "kernels/cuda/fused/forward.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/cuda/fused/chunks.h"
#include "kernels/cuda/fused/sliced_chunks.h"
#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/launch.h"
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

constexpr int64_t kFloatBytes = sizeof(float);

// What the partial results of a problem that is decoded take.
int64_t RecordBytes(const Problem& p) {
  if (p.dtype() == DType::kF32 || !KindsOf(p).decode) return 0;
  return DecodeTiles(p).records() *
         RecordFloats(RoundedDim(p.head_dim, p.value_dim)) * kFloatBytes;
}

// Finds the launches for problems that share them.
class ForwardChunk {
 public:
  // With the kernels that there are for `gpu`.
  ForwardChunk(absl::Span<const ForwardArgs> problems, const Gpu& gpu)
      : gpu_(gpu) {
    chunk_.blob.Reserve(problems.size() * kUsualBytes);
    for (const ForwardArgs& args : problems) {
      if (IsWanted(args)) Add(args);
    }
    for (Launch& launch : chunk_.launches) launch.Place(chunk_.blob);
    CountMemory();
  }

  Chunk Take() { return std::move(chunk_); }

 private:
  // Of a problem with one segment, for one of Hopper's kernels.
  static constexpr size_t kUsualBytes =
      sizeof(DeviceProblem) + sizeof(DeviceSegment) +
      sm90::KMap(1) * sizeof(CUtensorMap) + sizeof(TileRun);

  void Add(const ForwardArgs& args) {
    const Problem& p = args.problem;
    const BlobOffset problem = chunk_.blob.Append(args);
    if (p.dtype() == DType::kF32) {
      AddRows(args, problem, Sm80(Kind::kFloat32, p));
      return;
    }
    const Kinds kinds = KindsOf(p);
    if (kinds.prefill && !AddHopper(args, problem)) {
      AddRows(args, problem, Sm80(Kind::kPrefill, p));
    }
    if (kinds.decode) {
      Launch& launch = chunk_.LaunchOf(Sm80(Kind::kDecode, p));
      launch.Add(chunk_.blob, problem, DecodeTiles(p), {},
                 DecodeAhead(p, launch.kernel()));
    }
  }

  void AddRows(const ForwardArgs& args, BlobOffset problem,
               const Kernel& kernel) {
    chunk_.LaunchOf(kernel).Add(chunk_.blob, problem,
                                RowTiles(args.problem, kernel));
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
      const BlobOffset at = chunk_.blob.Append(absl::MakeConstSpan(maps->maps));
      chunk_.LaunchOf(*kernel).Add(chunk_.blob, problem, RowTiles(p, *kernel),
                                   {.maps = at, .has_o_map = maps->has_o});
    }
    return !kernels.empty();
  }

  static const Kernel& Sm80(Kind kind, const Problem& p) {
    return FindKernel(kind, p.dtype(), p.head_dim, p.value_dim);
  }

  // Scratch is for partial results, which one launch alone has. Counters are
  // the same for all launches: each leaves them 0.
  void CountMemory() {
    for (const Launch& launch : chunk_.launches) {
      chunk_.scratch_bytes = std::max(
          chunk_.scratch_bytes,
          launch.records() * RecordFloats(launch.kernel().dim) * kFloatBytes);
      chunk_.counters = std::max(chunk_.counters, launch.counters());
    }
  }

  const Gpu gpu_;
  Chunk chunk_;
};

// The kernel that most of the problem's work runs in.
const Kernel& MainKernel(const Problem& p, const Gpu& gpu) {
  if (gpu.is_hopper() && !IsDecode(p.q_len)) {
    const auto kernels = sm90::FindForward(p);
    if (!kernels.empty()) return *kernels.back();
  }
  const Kind kind = p.dtype() == DType::kF32 ? Kind::kFloat32
                    : IsDecode(p.q_len)      ? Kind::kDecode
                                             : Kind::kPrefill;
  return FindKernel(kind, p.dtype(), p.head_dim, p.value_dim);
}

// The group's chunks, with the kernels that there are for `gpu`.
Chunks ChunksOf(absl::Span<const ForwardArgs> group, const Gpu& gpu) {
  Chunks chunks;
  ForEachChunk(
      group, [](const ForwardArgs& args) { return RecordBytes(args.problem); },
      [&](absl::Span<const ForwardArgs> problems) {
        chunks.push_back(ForwardChunk(problems, gpu).Take());
      });
  return chunks;
}

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueFused(absl::Span<const ForwardArgs> group,
                                          const Gpu& gpu, Workspace& workspace,
                                          const FusedOptions& options) {
  return EnqueueChunks(ChunksOf(group, options.any_gpu ? AsAnyGpu(gpu) : gpu),
                       gpu, workspace);
}

absl::StatusOr<std::unique_ptr<Rest>> BeginFused(
    absl::Span<const ForwardArgs> group, const Gpu& gpu, Workspace& workspace,
    const SliceOptions& slices) {
  return BeginChunks(ChunksOf(group, gpu), gpu, workspace, slices);
}

KernelInfo FusedKernel(const Problem& p, const Gpu& gpu) {
  return {Algorithm::kFlashAttention2, MainKernel(p, gpu).name};
}

CutUnit FusedCut(const Problem& p, const Gpu& gpu) {
  // Each part of a sequence that is decoded reads a share of all its columns.
  if (p.dtype() != DType::kF32 && IsDecode(p.q_len)) {
    return {.rows = kDecodeRows,
            .columns = std::max<int64_t>(1, PaddedKvLen(p))};
  }
  const Kernel& kernel = MainKernel(p, gpu);
  return {.rows = kernel.rows,
          .least_rows = kDecodeRows + 1,
          .columns = kernel.cols,
          .least_columns = gpu.is_hopper() ? sm90::LeastColumns(p) : 1};
}

int64_t FusedScratchBytes(const Problem& p) { return RecordBytes(p); }

}  // namespace attnd::cuda
