#ifndef ATTND_KERNELS_CUDA_TILE_OPEN_TILE_CUH_
#define ATTND_KERNELS_CUDA_TILE_OPEN_TILE_CUH_

// The first thing that a team of threads, a block or a warp, does with a tile
// of its launch: it finds the problem that the tile belongs to, and copies that
// problem's description to shared memory in one go. Parameters and memory are
// too far away to be read field by field.

#include <cstdint>

#include "kernels/cuda/tile/sequence.h"

namespace attnd::cuda {

// A problem's description in shared memory.
struct alignas(16) TileDescription {
  // The segments of a problem that has more stay in the block of descriptors.
  static constexpr int kSegments = 2;
  DeviceProblem problem;
  DeviceSegment segments[kSegments];
};
static_assert(sizeof(DeviceProblem) % 16 == 0 &&
              sizeof(DeviceSegment) % 16 == 0);

// What a tile's run says of it (TileRun in descriptor.h), and its problem.
struct OpenTile {
  const DeviceProblem* problem;
  const DeviceSegment* segments;
  int64_t first_record, first_counter;
  BlobOffset maps, gradients;
  bool has_o_map;
  uint32_t row_blocks;
  uint32_t heads_together, chunk_blocks;
  bool heads_follow;
  int32_t parts;
  uint32_t index;  // the tile's number in its run

  __device__ Sequence sequence(const std::byte* blob, int64_t b) const {
    return MakeSequence(blob, *problem, segments, b);
  }
};

struct Quotient {
  uint32_t quotient, remainder;
};
// a / b and a % b of counts of tiles, heads or rows, which fit 32 bits. A GPU
// has no instruction for division, and mostly a < b or b == 1 makes it
// needless.
__device__ inline Quotient Divide(uint32_t a, uint32_t b) {
  const uint32_t quotient = a < b ? 0 : b == 1 ? a : a / b;
  return {quotient, a - quotient * b};
}

// The number of the run that has `tile`: the last that begins at it or before.
// All lanes of a warp call it, and look at 32 runs at a time.
__device__ inline int FindRun(const TileRun* runs, int count, int64_t tile) {
  const int lane = threadIdx.x % 32;
  int first = 0;
  while (count > 1) {
    const int step = (count + 31) / 32;
    const int offset = lane * step;
    const bool before =
        offset < count && runs[first + offset].first_tile <= tile;
    const int last = 31 - __clz(__ballot_sync(0xffffffff, before));
    first += last * step;
    count = min(step, count - last * step);
  }
  return first;
}

// The teams: their size, and which of their threads this one is.
template <int kThreads>
struct BlockTeam {
  static constexpr int kSize = kThreads;
  __device__ static int Thread() { return threadIdx.x; }
};
struct WarpTeam {
  static constexpr int kSize = 32;
  __device__ static int Thread() { return threadIdx.x % 32; }
};

// Copies a run's problem, and its segments if they are few, to shared memory.
// The constructor starts to load all words at once, each into a register of one
// of the team's threads, and Put stores them.
template <class Team>
class DescriptionCopy {
 public:
  __device__ DescriptionCopy(const std::byte* blob, const TileRun& run) {
    const auto* problem = At<uint4>(blob, run.problem);
    const auto* segments = At<uint4>(blob, run.segments);
    count_ = kProblemWords + (run.num_segments <= TileDescription::kSegments
                                  ? run.num_segments * kSegmentWords
                                  : 0);
    ForEach([&](int i, uint4& word) {
      word = i < kProblemWords ? problem[i] : segments[i - kProblemWords];
    });
  }
  // Nobody may still be reading `description`; it can be read after the team's
  // next barrier.
  __device__ void Put(TileDescription& description) {
    ForEach([&](int i, const uint4& word) {
      reinterpret_cast<uint4*>(&description)[i] = word;
    });
  }

 private:
  static constexpr int kProblemWords = sizeof(DeviceProblem) / 16;
  static constexpr int kSegmentWords = sizeof(DeviceSegment) / 16;
  static constexpr int kTurns =
      (sizeof(TileDescription) / 16 + Team::kSize - 1) / Team::kSize;

  template <class Do>
  __device__ void ForEach(const Do& what) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int i = Team::Thread() + turn * Team::kSize;
      if (i < count_) what(i, words_[turn]);
    }
  }

  int count_;
  uint4 words_[kTurns];
};

// Both steps of DescriptionCopy for a warp, all lanes of which call it. Nobody
// may still be reading `description`; afterwards all lanes can read it.
__device__ inline void Describe(const std::byte* blob, const TileRun& run,
                                TileDescription& description) {
  DescriptionCopy<WarpTeam>(blob, run).Put(description);
  __syncwarp();  // the description is complete
}

// Tile `tile` of the launch, which lies in `run`. `description` is that of the
// run's problem.
__device__ inline OpenTile MakeOpenTile(const std::byte* blob,
                                        const TileRun& run, int64_t tile,
                                        const TileDescription& description) {
  const bool few = run.num_segments <= TileDescription::kSegments;
  return {&description.problem,
          few ? description.segments : At<DeviceSegment>(blob, run.segments),
          run.first_record,
          run.first_counter,
          run.maps,
          run.gradients,
          run.has_o_map,
          static_cast<uint32_t>(run.row_blocks),
          static_cast<uint32_t>(run.heads_together),
          static_cast<uint32_t>(run.chunk_blocks),
          run.heads_follow,
          run.parts,
          static_cast<uint32_t>(tile - run.first_tile)};
}

// Finds the tile of a block of threads in two steps, between which its
// description is on its way: the constructor asks for it and Open stores it.
// All kThreads of the block call both.
template <int kThreads>
class TileFinder {
 public:
  __device__ TileFinder(const LaunchParams& params, int64_t tile)
      : blob_(BlobOf(params)),
        tile_(tile),
        run_(RunOf(params, tile)),
        copy_(blob_, run_) {}

  __device__ BlobOffset gradients() const { return run_.gradients; }

  // Nobody may still be reading `description`.
  __device__ OpenTile Open(TileDescription& description) {
    copy_.Put(description);
    __syncthreads();  // the description is complete
    return MakeOpenTile(blob_, run_, tile_, description);
  }

 private:
  __device__ static TileRun RunOf(const LaunchParams& params, int64_t tile) {
    if (params.num_runs == 1) [[likely]]
      return params.first_run;
    const TileRun* runs = At<TileRun>(BlobOf(params), params.runs);
    return runs[FindRun(runs, params.num_runs, tile)];
  }

  const std::byte* blob_;
  const int64_t tile_;
  const TileRun run_;
  DescriptionCopy<BlockTeam<kThreads>> copy_;
};

// Both steps of TileFinder.
template <int kThreads>
__device__ OpenTile FindTile(const LaunchParams& params, int64_t tile,
                             TileDescription& description) {
  return TileFinder<kThreads>(params, tile).Open(description);
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TILE_OPEN_TILE_CUH_
