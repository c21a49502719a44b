#include "kernels/cuda/fused/fused_backward.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/gradient.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/pack.h"
#include "kernels/cuda/launch/wanted.h"
#include "kernels/cuda/rows/gradient_rows.h"
#include "kernels/cuda/sm80/kernels.h"
#include "kernels/cuda/sm90/backward/tensor_maps.h"
#include "kernels/cuda/sm90/kernels.h"

namespace attnd::cuda {
namespace {

// Problems share launches as long as their scratch takes no more than this, or
// than one of them alone does: what a stream has without being charged to
// anyone.
constexpr int64_t kSharedScratchBytes = int64_t{64} << 20;

constexpr int64_t kWordBytes = 4;

const Kernel& AnyGpusKernel(const Problem& p, const Gpu& gpu) {
  return sm80::FindBackwardKernel(p.dtype(), p.head_dim, p.value_dim,
                                  gpu.shared_bytes);
}

// The kernel that a problem runs in, if its memory is aligned as Hopper's need
// it; sm80's takes every problem.
const Kernel& KernelOf(const Problem& p, const Gpu& gpu) {
  const Kernel* hopper = gpu.is_hopper() ? sm90::FindBackward(p) : nullptr;
  return hopper != nullptr ? *hopper : AnyGpusKernel(p, gpu);
}

int DqDim(const Kernel& kernel) {
  return kernel.dq_dim != 0 ? kernel.dq_dim : kernel.dim;
}
// The most columns that the sums of dQ may have.
int MostDqDim(const Problem& p, const Gpu& gpu) {
  return std::max(DqDim(KernelOf(p, gpu)), DqDim(AnyGpusKernel(p, gpu)));
}

// Words, in whole lines of 256 bytes.
int64_t Lines(int64_t words) { return (words + 63) / 64 * 64; }

// In words: LSE in both units, delta and the sums of dQ of every row, its
// turns, what tells them, and whether LSE is huge.
struct ScratchWords {
  int64_t rows, sums, turns, turns_until, huge;
  int64_t total() const {
    return Lines(3 * rows + sums + turns + turns_until + huge);
  }
};
ScratchWords ScratchOf(const Problem& p, int dq_dim) {
  const int64_t rows = p.batch * PaddedRows(p.q_len);
  return {rows * p.q_heads, rows * p.q_heads * dq_dim,
          rows * p.q_heads / kTurnRows,
          rows * static_cast<int64_t>(p.kv.size()) / kTurnRows,
          rows * p.q_heads / kGradientRows};
}

// What a kernel must know of its tiles.
int64_t PlanWords(const Kernel& kernel, int64_t tiles) {
  return tiles * kernel.plan_bytes / kWordBytes;
}
// The same in bytes and whole lines, or more, in double.
double MostPlanBytes(const Problem& p, const Kernel& kernel) {
  if (kernel.plan_bytes == 0) return 0.0;
  double blocks = 0.0;
  for (const KvSegment& s : p.kv) {
    blocks += static_cast<double>(s.len / kernel.cols) + 1.0;
  }
  return blocks * static_cast<double>(p.batch) *
             static_cast<double>(p.kv_heads) * kernel.plan_bytes +
         kWordBytes * static_cast<double>(Lines(1));
}
// The most that a problem may take of all this.
int64_t MostWords(const Problem& p, const Gpu& gpu) {
  const Kernel& kernel = KernelOf(p, gpu);
  return ScratchOf(p, MostDqDim(p, gpu)).total() +
         Lines(PlanWords(kernel, ColumnTiles(p, kernel).count()));
}

// The first problems of the group that one set of launches takes.
absl::Span<const BackwardArgs> FirstChunk(absl::Span<const BackwardArgs> group,
                                          const Gpu& gpu) {
  int64_t bytes = 0;
  size_t count = 0;
  for (const BackwardArgs& args : group) {
    const Problem& p = args.problem;
    bytes += MostWords(p, gpu) * kWordBytes;
    if (count > 0 && bytes > kSharedScratchBytes) break;
    ++count;
  }
  return group.first(count);
}

// The most that one set of launches takes.
int64_t MostScratchBytes(absl::Span<const BackwardArgs> group, const Gpu& gpu) {
  int64_t most = 0;
  while (!group.empty()) {
    const absl::Span<const BackwardArgs> chunk = FirstChunk(group, gpu);
    int64_t words = 0;
    for (const BackwardArgs& args : chunk) {
      const Problem& p = args.problem;
      if (IsWanted(args)) words += MostWords(p, gpu);
    }
    most = std::max(most, words * kWordBytes);
    group.remove_prefix(chunk.size());
  }
  return most;
}

// The kernels for a group, with their tiles and scratch.
class Plan {
 public:
  // Of the kernels for `gpu`.
  Plan(absl::Span<const BackwardArgs> group, bool deterministic, const Gpu& gpu)
      : gpu_(gpu), deterministic_(deterministic) {
    launches_.emplace_back(PrepareRowsKernel(group[0].problem.dtype()));
    for (const BackwardArgs& args : group) {
      if (IsWanted(args)) Add(args);
    }
    launches_.push_back(finish_);
    for (Launch& launch : launches_) launch.Place(blob_);
    AddPlans();
  }

  // In the order in which they must run.
  const std::vector<Launch>& launches() const { return launches_; }
  const std::vector<std::byte>& block() const { return blob_.bytes(); }
  int64_t scratch_bytes() const { return scratch_words_ * kWordBytes; }
  bool deterministic() const { return deterministic_; }

 private:
  void Add(const BackwardArgs& args) {
    const Problem& p = args.problem;
    const Kernel* kernel = &KernelOf(p, gpu_);
    RunExtras extras;
    if (kernel->needs_maps) {
      const auto maps = sm90::MakeBackwardMaps(args);
      if (maps.has_value()) {
        extras.maps = blob_.Append(absl::MakeConstSpan(maps->maps));
      } else {
        kernel = &AnyGpusKernel(p, gpu_);
      }
    }
    const BlobOffset problem = blob_.Append(ForwardArgs{p, {}, {}});
    extras.gradients = AddGradients(args, *kernel);
    launches_.front().Add(blob_, problem,
                          RowTiles(p, launches_.front().kernel()), extras);
    LaunchOf(*kernel).Add(blob_, problem, TilesOf(p, *kernel), extras);
    if (args.dq) {
      finish_.Add(blob_, problem, RowTiles(p, finish_.kernel()), extras);
    }
  }

  // Where blocks take turns, as many heads come together as the GPU has place
  // for.
  Tiles TilesOf(const Problem& p, const Kernel& kernel) const {
    Tiles tiles = ColumnTiles(p, kernel);
    if (deterministic_ && tiles.count() > 0) {
      tiles.heads_together = std::clamp<int64_t>(
          gpu_.multiprocessors / kernel.cluster / tiles.row_blocks, 1,
          tiles.heads);
    }
    return tiles;
  }

  // Before each launch that needs them.
  void AddPlans() {
    std::vector<Launch> launches;
    for (Launch& launch : launches_) {
      const int64_t words = PlanWords(launch.kernel(), launch.tiles());
      if (words > 0) {
        launch.set_plans_at(scratch_words_);
        scratch_words_ += Lines(words);
        launches.push_back(launch.For(sm90::PlanColumnsKernel()));
      }
      launches.push_back(launch);
    }
    launches_ = std::move(launches);
  }

  BlobOffset AddGradients(const BackwardArgs& args, const Kernel& kernel) {
    const ScratchWords words = ScratchOf(args.problem, DqDim(kernel));
    DeviceGradients g;
    g.dq_layout = kernel.dq_layout;
    g.dq_dim = DqDim(kernel);
    g.deterministic = deterministic_;
    g.padded_rows = PaddedRows(args.problem.q_len);
    // The sums first: all of them begin at whole lines then.
    g.dq_at = scratch_words_;
    g.lse_at = g.dq_at + words.sums;
    g.delta_at = g.lse_at + words.rows;
    g.natural_lse_at = g.delta_at + words.rows;
    g.turns_at = g.natural_lse_at + words.rows;
    g.turns_until_at = g.turns_at + words.turns;
    g.huge_at = g.turns_until_at + words.turns_until;
    g.turn_rows = kernel.rows;
    g.turn_cols = kernel.cols;
    g.cluster = kernel.cluster;
    scratch_words_ += words.total();
    return blob_.Append(args, g);
  }

  Launch& LaunchOf(const Kernel& kernel) {
    for (Launch& launch : launches_) {
      if (&launch.kernel() == &kernel) return launch;
    }
    return launches_.emplace_back(kernel);
  }

  const Gpu gpu_;
  const bool deterministic_;
  Blob blob_;
  std::vector<Launch> launches_;
  Launch finish_{FinishDqKernel()};
  int64_t scratch_words_ = 0;
};

// Everything that may fail for want of memory comes before the first launch.
absl::Status EnqueueChunk(const Plan& plan, const Gpu& gpu,
                          Workspace& workspace, LaunchCounts& counts) {
  LaunchParams params;
  absl::Status status = Prepare(plan.launches());
  if (!status.ok()) return status;
  if (plan.scratch_bytes() > 0) {
    auto scratch = workspace.Scratch(plan.scratch_bytes());
    if (!scratch.ok()) return scratch.status();
    params.scratch = reinterpret_cast<float*>(*scratch);
  }
  // The next tile of a launch whose blocks take them in order.
  auto counters = workspace.Counters(1);
  if (!counters.ok()) return counters.status();
  params.counters = *counters;
  params.in_turns = plan.deterministic();
  status = PlaceBlock(plan.block(), workspace, params, counts);
  if (!status.ok()) return status;
  return Enqueue(plan.launches(), params, gpu, workspace.stream(), counts);
}

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueFusedBackward(
    absl::Span<const BackwardArgs> group, const FusedBackwardOptions& options,
    Workspace& workspace) {
  absl::StatusOr<Gpu> gpu = CurrentGpu();
  if (!gpu.ok()) return gpu.status();
  const Gpu kernels_for = options.any_gpu ? AsAnyGpu(*gpu) : *gpu;
  // Before anything is launched, in case that there is no memory for it.
  auto scratch = workspace.Scratch(MostScratchBytes(group, kernels_for));
  if (!scratch.ok()) return scratch.status();
  LaunchCounts counts;
  while (!group.empty()) {
    const absl::Span<const BackwardArgs> chunk = FirstChunk(group, kernels_for);
    absl::Status status =
        EnqueueChunk(Plan(chunk, options.deterministic, kernels_for), *gpu,
                     workspace, counts);
    if (!status.ok()) return status;
    group.remove_prefix(chunk.size());
  }
  return counts;
}

KernelInfo FusedBackwardKernel(const Problem& p, const Gpu& gpu) {
  return {Algorithm::kFlashAttention2, KernelOf(p, gpu).name};
}

int64_t FusedBackwardScratchBytes(const Problem& p) {
  // In double, so that nothing overflows: what is valid may be too large.
  const double rows =
      static_cast<double>(p.batch) * static_cast<double>(PaddedRows(p.q_len));
  // No other GPU takes more; shared memory changes nothing here.
  const Gpu gpu = {.capability = kHopperCapability};
  const int dim = MostDqDim(p, gpu);
  return Saturate(kWordBytes * rows *
                      (static_cast<double>(p.q_heads) * (dim + 4) +
                       static_cast<double>(p.kv.size())) +
                  MostPlanBytes(p, KernelOf(p, gpu)));
}

}  // namespace attnd::cuda
