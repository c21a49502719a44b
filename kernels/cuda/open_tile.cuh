#ifndef ATTND_KERNELS_CUDA_OPEN_TILE_CUH_
#define ATTND_KERNELS_CUDA_OPEN_TILE_CUH_

// The first thing that a team of threads, a block or a warp of them, does with
// a tile of its launch: find whose it is, and bring what describes it into
// shared memory, all at once. Parameters and memory are too far away to be read
// field by field.

#include <cstdint>

#include "kernels/cuda/sequence.h"

namespace attnd::cuda {

struct TileDescription {
  // A problem that has more leaves them where they are.
  static constexpr int kSegments = 2;
  DeviceProblem problem;
  DeviceSegment segments[kSegments];
};

struct OpenTile {
  const DeviceProblem* problem;
  const DeviceSegment* segments;
  int64_t first_record, first_counter;
  BlobOffset maps;
  bool has_o_map;
  int64_t row_blocks;
  int64_t heads_together;
  int32_t parts;
  int64_t index;  // in the run

  __device__ Sequence sequence(const std::byte* blob, int64_t b) const {
    return MakeSequence(blob, *problem, segments, b);
  }
};

struct Quotient {
  int64_t quotient, remainder;
};
// Of non-negative numbers, which nearly always fit 32 bits.
__device__ inline Quotient Divide(int64_t a, int64_t b) {
  if (b == 1) return {a, 0};
  if (a < b) return {0, a};
  if (((a | b) >> 32) == 0) {
    const uint32_t q = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
    return {q, a - q * b};
  }
  return {a / b, a % b};
}

// The last of the runs that begin at `tile` or before; a warp's lanes look at
// 32 at a time.
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

template <int kThreads>
struct BlockTeam {
  static constexpr int kSize = kThreads;
  __device__ static int Thread() { return threadIdx.x; }
  __device__ static void Sync() { __syncthreads(); }
};
struct WarpTeam {
  static constexpr int kSize = 32;
  __device__ static int Thread() { return threadIdx.x % 32; }
  __device__ static void Sync() { __syncwarp(); }
};

// Copies whole 16-byte words; both sides are aligned so.
template <class Team, class T>
__device__ void CopyTogether(const std::byte* from, int count, T* to) {
  static_assert(sizeof(T) % 16 == 0);
  const int words = count * static_cast<int>(sizeof(T) / 16);
#pragma unroll 1
  for (int i = Team::Thread(); i < words; i += Team::kSize) {
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  }
}

// Brings a run's problem to shared memory. For all threads of the team; nobody
// may still read `description`.
template <class Team>
__device__ void Describe(const std::byte* blob, const TileRun& run,
                         TileDescription& description) {
  CopyTogether<Team>(blob + run.problem, 1, &description.problem);
  if (run.num_segments <= TileDescription::kSegments) {
    CopyTogether<Team>(blob + run.segments, run.num_segments,
                       description.segments);
  }
  Team::Sync();  // all have the description
}

// The run's tile `tile`, as a description of the run's problem has it.
__device__ inline OpenTile MakeOpenTile(const std::byte* blob,
                                        const TileRun& run, int64_t tile,
                                        const TileDescription& description) {
  const bool few = run.num_segments <= TileDescription::kSegments;
  return {&description.problem,
          few ? description.segments : At<DeviceSegment>(blob, run.segments),
          run.first_record,
          run.first_counter,
          run.maps,
          run.has_o_map,
          run.row_blocks,
          run.heads_together,
          run.parts,
          tile - run.first_tile};
}

template <class Team>
__device__ OpenTile FindTile(const std::byte* blob, BlobOffset runs_at,
                             int num_runs, int64_t tile,
                             TileDescription& description) {
  const TileRun* runs = At<TileRun>(blob, runs_at);
  const TileRun run = runs[FindRun(runs, num_runs, tile)];
  Describe<Team>(blob, run, description);
  return MakeOpenTile(blob, run, tile, description);
}
// For all kThreads of the block; nobody may still read `description`.
template <int kThreads>
__device__ OpenTile FindTile(const LaunchParams& params, int64_t tile,
                             TileDescription& description) {
  using Team = BlockTeam<kThreads>;
  // Apart, so that the compiler knows where each of them reads from.
  return params.blob == nullptr
             ? FindTile<Team>(params.inline_blob, params.runs, params.num_runs,
                              tile, description)
             : FindTile<Team>(params.blob, params.runs, params.num_runs, tile,
                              description);
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_OPEN_TILE_CUH_
