#include "kernels/cuda/fused/backward.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/fused/chunks.h"
#include "kernels/cuda/fused/sliced_chunks.h"
#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/gradient.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/wanted.h"
#include "kernels/cuda/rows/gradient_rows.h"
#include "kernels/cuda/sm80/kernels.h"
#include "kernels/cuda/sm90/backward/tensor_maps.h"
#include "kernels/cuda/sm90/kernels.h"
#include "kernels/cuda/tile/column_order.h"

namespace attnd::cuda {
namespace {

// Scratch is counted in words.
constexpr int64_t kWordBytes = 4;
// Words, in whole lines of 256 bytes.
int64_t Lines(int64_t words) { return (words + 63) / 64 * 64; }

// The kernels that a problem may run in.
struct Choice {
  const Kernel* kernel;    // if its memory is aligned as Hopper's need it
  const Kernel* any_gpus;  // sm80's, which takes every problem
};
Choice Choose(const Problem& p, const Gpu& gpu) {
  const Kernel* any_gpus = &sm80::FindBackwardKernel(
      p.dtype(), p.head_dim, p.value_dim, gpu.shared_bytes);
  const Kernel* hopper = gpu.is_hopper() ? sm90::FindBackward(p) : nullptr;
  return {hopper != nullptr ? hopper : any_gpus, any_gpus};
}

// Columns of the sums of dQ.
int DqDim(const Kernel& kernel) {
  return kernel.dq_dim != 0 ? kernel.dq_dim : kernel.dim;
}
int MostDqDim(const Choice& choice) {
  return std::max(DqDim(*choice.kernel), DqDim(*choice.any_gpus));
}

// Words of scratch per problem, as gradient.h lays them out: LSE in both units
// and delta (`rows` of each), sums of dQ, turn counters, turn limits, huge-LSE
// flags.
struct ScratchWords {
  int64_t rows, sums, turns, turn_offsets, huge;
  int64_t total() const {
    return Lines(3 * rows + sums + turns + turn_offsets + huge);
  }
};
ScratchWords ScratchOf(const Problem& p, int dq_dim) {
  const int64_t rows = p.batch * PaddedRows(p.q_len);
  return {rows * p.q_heads, rows * p.q_heads * dq_dim,
          rows * p.q_heads / kTurnRows,
          2 * rows * static_cast<int64_t>(p.kv.size()) / kTurnRows,
          rows * p.q_heads / kGradientRows};
}

// Whether the L2 cache keeps so many bytes of rows while one block of columns
// after the other visits them: some of it has other things.
bool IsCached(int64_t bytes, const Gpu& gpu) {
  return 4 * bytes <= int64_t{3} * gpu.cache_bytes;
}
// Bytes that blocks of columns read and write of the rows of a K/V head.
int64_t RowBytes(const Problem& p, const Kernel& kernel) {
  return p.group() * p.q_len *
         ((p.head_dim + p.value_dim) * SizeOf(p.dtype()) +
          DqDim(kernel) * static_cast<int64_t>(sizeof(float)));
}

// What a kernel must know of its tiles in advance.
int64_t PlanWords(const Kernel& kernel, int64_t tiles) {
  return tiles * kernel.plan_bytes / kWordBytes;
}
// The same in bytes and whole lines, or more, in double.
double MostPlanBytes(const Problem& p, const Kernel& kernel) {
  if (kernel.plan_bytes == 0) return 0.0;
  double blocks = 0.0;
  for (const KvSegment& s : p.kv) {
    const int64_t whole = s.len / kernel.cols;
    blocks += static_cast<double>(whole) + 1.0;
  }
  return blocks * static_cast<double>(p.batch) *
             static_cast<double>(p.kv_heads) * kernel.plan_bytes +
         kWordBytes * static_cast<double>(Lines(1));
}

// A problem of a group, with what is found out once for all that follows.
struct ChosenProblem {
  ChosenProblem(const BackwardArgs& args, const Gpu& gpu)
      : args(args), choice(Choose(args.problem, gpu)) {
    const Problem& p = args.problem;
    const Kernel& kernel = *choice.kernel;
    const int64_t words =
        ScratchOf(p, MostDqDim(choice)).total() +
        Lines(PlanWords(kernel, ColumnTiles(p, kernel).count()));
    most_scratch_bytes = words * kWordBytes;
  }

  const BackwardArgs& args;
  Choice choice;
  int64_t most_scratch_bytes;
};

// Finds the launches for problems that share them, and cuts up their scratch.
class BackwardChunk {
 public:
  // `gpu` is what the problems' kernels were chosen for.
  BackwardChunk(absl::Span<const ChosenProblem> problems, bool deterministic,
                const Gpu& gpu)
      : gpu_(gpu), deterministic_(deterministic) {
    const DType dtype = problems[0].args.problem.dtype();
    chunk_.launches.emplace_back(PrepareRowsKernel(dtype));
    for (const ChosenProblem& problem : problems) {
      if (IsWanted(problem.args)) Add(problem);
    }
    chunk_.launches.push_back(finish_);
    for (Launch& launch : chunk_.launches) launch.Place(chunk_.blob);
    AddPlans();
    chunk_.scratch_bytes = scratch_words_ * kWordBytes;
    // The next tile of a launch whose blocks take them in order.
    chunk_.counters = 1;
    chunk_.in_turns = deterministic;
  }

  Chunk Take() { return std::move(chunk_); }

 private:
  void Add(const ChosenProblem& problem) {
    const BackwardArgs& args = problem.args;
    const Problem& p = args.problem;
    const Kernel* kernel = problem.choice.kernel;
    RunExtras extras;
    if (kernel->needs_maps) {
      const auto maps = sm90::MakeBackwardMaps(args);
      if (maps.has_value()) {
        extras.maps = chunk_.blob.Append(absl::MakeConstSpan(maps->maps));
      } else {
        kernel = problem.choice.any_gpus;
      }
    }
    const BlobOffset packed = chunk_.blob.Append(ForwardArgs{p, {}, {}});
    extras.gradients = AddGradients(args, *kernel);
    Launch& prepare = chunk_.launches.front();
    prepare.Add(chunk_.blob, packed, RowTiles(p, prepare.kernel()), extras);
    chunk_.LaunchOf(*kernel).Add(chunk_.blob, packed, TilesOf(p, *kernel),
                                 extras);
    if (args.dq) {
      finish_.Add(chunk_.blob, packed, RowTiles(p, finish_.kernel()), extras);
    }
  }

  Tiles TilesOf(const Problem& p, const Kernel& kernel) const {
    Tiles tiles = ColumnTiles(p, kernel);
    tiles.last_first = deterministic_;
    if (!deterministic_ || !kernel.persistent || tiles.count() == 0) {
      return tiles;
    }
    tiles.alternates = true;
    const Whole whole = WholeOf(p, p.q_len, PaddedKvLen(p));
    tiles.first_kv_head = whole.kv_head;
    tiles.whole_kv_heads = whole.kv_heads;
    const ColumnOrder order =
        OrderInTurns(static_cast<uint32_t>(tiles.heads),
                     static_cast<uint32_t>(tiles.row_blocks),
                     gpu_.multiprocessors / kernel.cluster,
                     IsCached(RowBytes(p, kernel), gpu_));
    tiles.heads_together = order.heads_together;
    tiles.chunk_blocks = order.chunk_blocks;
    return tiles;
  }

  // Before each launch whose kernel must know its tiles in advance, puts one
  // that finds out what there is to know.
  void AddPlans() {
    std::vector<Launch> launches;
    for (Launch& launch : chunk_.launches) {
      const int64_t words = PlanWords(launch.kernel(), launch.tiles());
      if (words > 0) {
        launch.set_plans_at(scratch_words_);
        scratch_words_ += Lines(words);
        launches.push_back(launch.For(sm90::PlanColumnsKernel()));
      }
      launches.push_back(launch);
    }
    chunk_.launches = std::move(launches);
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
    g.turn_offsets_at = g.turns_at + words.turns;
    g.huge_at = g.turn_offsets_at + words.turn_offsets;
    g.turn_rows = kernel.rows;
    g.turn_cols = kernel.cols;
    g.cluster = kernel.cluster;
    const Whole whole =
        WholeOf(args.problem, args.problem.q_len, PaddedKvLen(args.problem));
    g.first_kv_head = static_cast<int32_t>(whole.kv_head);
    g.whole_kv_heads = static_cast<int32_t>(whole.kv_heads);
    scratch_words_ += words.total();
    return chunk_.blob.Append(args, g);
  }

  const Gpu gpu_;
  const bool deterministic_;
  Chunk chunk_;
  Launch finish_{FinishDqKernel()};
  int64_t scratch_words_ = 0;
};

Chunks ChunksOf(absl::Span<const BackwardArgs> group, const Gpu& gpu,
                const FusedBackwardOptions& options) {
  const Gpu kernels_for = options.any_gpu ? AsAnyGpu(gpu) : gpu;
  std::vector<ChosenProblem> chosen;
  chosen.reserve(group.size());
  for (const BackwardArgs& args : group) chosen.emplace_back(args, kernels_for);
  Chunks chunks;
  ForEachChunk(
      absl::MakeConstSpan(chosen),
      [](const ChosenProblem& x) { return x.most_scratch_bytes; },
      [&](absl::Span<const ChosenProblem> problems) {
        chunks.push_back(
            BackwardChunk(problems, options.deterministic, kernels_for).Take());
      });
  return chunks;
}

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueFusedBackward(
    absl::Span<const BackwardArgs> group, const Gpu& gpu, Workspace& workspace,
    const FusedBackwardOptions& options) {
  return EnqueueChunks(ChunksOf(group, gpu, options), gpu, workspace);
}

absl::StatusOr<std::unique_ptr<Rest>> BeginFusedBackward(
    absl::Span<const BackwardArgs> group, const Gpu& gpu, Workspace& workspace,
    const SliceOptions& slices, const FusedBackwardOptions& options) {
  return BeginChunks(ChunksOf(group, gpu, options), gpu, workspace, slices);
}

KernelInfo FusedBackwardKernel(const Problem& p, const Gpu& gpu) {
  return {Algorithm::kFlashAttention2, Choose(p, gpu).kernel->name};
}

int64_t FusedBackwardScratchBytes(const Problem& p) {
  // In double, so that nothing overflows: what is valid may be too large.
  const double rows =
      static_cast<double>(p.batch) * static_cast<double>(PaddedRows(p.q_len));
  // No other GPU takes more; shared memory changes nothing here.
  const Choice choice = Choose(p, {.capability = kHopperCapability});
  return Saturate(
      kWordBytes * rows *
          (static_cast<double>(p.q_heads) * (MostDqDim(choice) + 4) +
           static_cast<double>(p.kv.size())) +
      MostPlanBytes(p, *choice.kernel));
}

}  // namespace attnd::cuda
