#include "kernels/cuda/sm80/forward.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cuda/descriptor.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/sm80/config.h"
#include "kernels/cuda/sm80/kernels.h"
#include "kernels/cuda/sm80/partials.h"
#include "kernels/cuda/status.h"

namespace attnd::cuda::sm80 {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t MostColumns(const Problem& p) {
  int64_t columns = 0;
  for (const KvSegment& s : p.kv) columns += s.len;
  return columns;
}

// The tiles of a problem in one launch.
struct Tiles {
  int64_t heads = 0;  // that have row blocks of their own, over the whole batch
  int64_t row_blocks = 0;  // of each
  int64_t splits = 1;      // of each, along the columns
  int64_t columns = 0;     // that one looks at

  int64_t count() const { return heads * row_blocks * splits; }
  int64_t records() const { return splits > 1 ? count() * kDecodeTile : 0; }
};

Tiles DecodeTiles(const Problem& p) {
  const int64_t columns = MostColumns(p);
  return {p.batch * p.kv_heads,
          CeilDiv(std::min(p.q_len, kDecodeRows) * p.group(), kDecodeTile),
          Splits(columns), std::min(columns, kSplitColumns)};
}

Tiles RowTiles(const Problem& p, const Kernel& kernel) {
  return {p.batch * p.q_heads, CeilDiv(p.q_len, kernel.rows), 1,
          MostColumns(p)};
}

// One kernel with the tiles that a group has for it.
struct Launch {
  explicit Launch(const Kernel& kernel) : kernel(kernel) {}

  void Add(const Blob& blob, BlobOffset problem, const Tiles& of) {
    if (of.count() == 0) return;
    const DeviceProblem packed = blob.problem(problem);
    TileRun run;
    run.problem = problem;
    run.segments = packed.segments;
    run.num_segments = packed.num_segments;
    run.row_blocks = static_cast<int32_t>(of.row_blocks);
    run.splits = static_cast<int32_t>(of.splits);
    entries.push_back({run, of});
  }

  // Tiles that take longest first, so that the end is not one of them alone.
  std::vector<TileRun> Runs() {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) {
                       return a.of.columns > b.of.columns;
                     });
    std::vector<TileRun> runs;
    for (Entry& entry : entries) {
      entry.run.first_tile = tiles;
      entry.run.first_record = records;
      tiles += entry.of.count();
      records += entry.of.records();
      runs.push_back(entry.run);
    }
    return runs;
  }

  struct Entry {
    TileRun run;
    Tiles of;
  };

  const Kernel& kernel;
  std::vector<Entry> entries;
  int64_t tiles = 0;
  int64_t records = 0;  // of partial results
  BlobOffset runs_at = 0;
};

// Whether the problem has sequences to be decoded, and others; where it has
// padding beyond what decode covers, there are others.
struct Kinds {
  bool decode = false, prefill = false;
};
Kinds KindsOf(const Problem& p) {
  if (IsDecode(p.q_len)) return {.decode = true};
  return {.decode = std::any_of(p.q_lens.begin(), p.q_lens.end(), IsDecode),
          .prefill = true};
}

bool HasOutputs(const ForwardArgs& args) {
  const Problem& p = args.problem;
  return p.batch > 0 && p.q_heads > 0 && p.q_len > 0 && (args.o || args.lse) &&
         (p.cancel == nullptr || !p.cancel->cancelled());
}

absl::Status Enqueue(const Launch& launch, const LaunchParams& given,
                     cudaStream_t stream) {
  LaunchParams params = given;
  params.runs = launch.runs_at;
  params.num_runs = static_cast<int32_t>(launch.entries.size());
  params.num_tiles = launch.tiles;
  const Kernel& kernel = launch.kernel;
  absl::Status status =
      ToStatus(cudaFuncSetAttribute(kernel.function,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    kernel.shared_bytes),
               kernel.name);
  if (!status.ok()) return status;
  const auto blocks = static_cast<unsigned>(
      std::min<int64_t>(launch.tiles, std::numeric_limits<int32_t>::max()));
  void* arguments[] = {&params};
  return ToStatus(
      cudaLaunchKernel(kernel.function, dim3(blocks), dim3(kernel.threads),
                       arguments, kernel.shared_bytes, stream),
      kernel.name);
}

int64_t RecordBytes(int64_t records, int dim) {
  return records * RecordFloats(dim) * static_cast<int64_t>(sizeof(float));
}

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueForward(absl::Span<const ForwardArgs> group,
                                            Workspace& workspace) {
  if (group.empty()) return LaunchCounts();
  const Problem& any = group.front().problem;
  const auto kernel = [&](Kind kind) -> const Kernel& {
    return FindKernel(kind, any.dtype(), any.head_dim, any.value_dim);
  };
  const bool f32 = any.dtype() == DType::kF32;
  Launch launches[] = {
      Launch(kernel(f32 ? Kind::kFloat32 : Kind::kPrefill)),
      Launch(kernel(f32 ? Kind::kFloat32 : Kind::kDecode)),
  };
  Blob blob;
  for (const ForwardArgs& args : group) {
    if (!HasOutputs(args)) continue;
    const BlobOffset problem = blob.Append(args);
    const Kinds kinds = KindsOf(args.problem);
    if (f32 || kinds.prefill) {
      launches[0].Add(blob, problem,
                      RowTiles(args.problem, launches[0].kernel));
    }
    if (!f32 && kinds.decode) {
      launches[1].Add(blob, problem, DecodeTiles(args.problem));
    }
  }
  for (Launch& launch : launches) {
    launch.runs_at = blob.Append(absl::MakeConstSpan(launch.Runs()));
  }

  LaunchCounts counts;
  LaunchParams params;
  const int64_t records = launches[1].records;
  if (records > 0) {
    auto scratch =
        workspace.Scratch(RecordBytes(records, launches[1].kernel.dim));
    if (!scratch.ok()) return scratch.status();
    params.scratch = reinterpret_cast<float*>(*scratch);
    auto counters = workspace.Counters(records / kDecodeTile);
    if (!counters.ok()) return counters.status();
    params.counters = *counters;
  }
  if (blob.bytes().size() <= kInlineBytes) {
    std::memcpy(params.inline_blob, blob.bytes().data(), blob.bytes().size());
  } else {
    auto copied = workspace.CopyToDevice(blob.bytes());
    if (!copied.ok()) return copied.status();
    params.blob = *copied;
    ++counts.copies;
  }
  for (const Launch& launch : launches) {
    if (launch.tiles == 0) continue;
    absl::Status status = Enqueue(launch, params, workspace.stream());
    if (!status.ok()) return status;
    ++counts.kernels;
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

int64_t ForwardScratchBytes(const Problem& p) {
  const int64_t arrays = p.q_lens.size() + p.q_starts.size();
  int64_t bytes = 4096 + 8 * arrays;
  for (const KvSegment& s : p.kv) {
    bytes +=
        sizeof(DeviceSegment) + 8 * (s.lens.size() + s.positions.starts.size());
  }
  if (p.dtype() == DType::kF32 || !KindsOf(p).decode) return bytes;
  return bytes + RecordBytes(DecodeTiles(p).records(),
                             RoundedDim(p.head_dim, p.value_dim));
}

}  // namespace attnd::cuda::sm80
