#ifndef ATTND_KERNELS_CUDA_SM80_OPEN_TILE_CUH_
#define ATTND_KERNELS_CUDA_SM80_OPEN_TILE_CUH_

// The first thing that a block of threads does with a tile of its launch: find
// whose it is, and bring what describes it into shared memory, all at once.
// Parameters and memory are too far away to be read field by field.

#include <cstdint>

#include "kernels/cuda/sequence.h"

namespace attnd::cuda::sm80 {

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
  int64_t row_blocks;
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

// Copies whole 16-byte words; both sides are aligned so.
template <class T>
__device__ void CopyTogether(const std::byte* from, int count, T* to) {
  static_assert(sizeof(T) % 16 == 0);
  const int words = count * static_cast<int>(sizeof(T) / 16);
  for (int i = threadIdx.x; i < words; i += blockDim.x) {
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  }
}

// For all threads of the block; nobody may still read `description`.
__device__ inline OpenTile FindTile(const std::byte* blob, BlobOffset runs_at,
                                    int num_runs, int64_t tile,
                                    TileDescription& description) {
  const TileRun* runs = At<TileRun>(blob, runs_at);
  const TileRun run = runs[FindRun(runs, num_runs, tile)];
  CopyTogether(blob + run.problem, 1, &description.problem);
  const bool few = run.num_segments <= TileDescription::kSegments;
  if (few) {
    CopyTogether(blob + run.segments, run.num_segments, description.segments);
  }
  __syncthreads();  // all have the description
  return {&description.problem,
          few ? description.segments : At<DeviceSegment>(blob, run.segments),
          run.first_record,
          run.first_counter,
          run.row_blocks,
          run.parts,
          tile - run.first_tile};
}
__device__ inline OpenTile FindTile(const LaunchParams& params, int64_t tile,
                                    TileDescription& description) {
  // Apart, so that the compiler knows where each of them reads from.
  return params.blob == nullptr ? FindTile(params.inline_blob, params.runs,
                                           params.num_runs, tile, description)
                                : FindTile(params.blob, params.runs,
                                           params.num_runs, tile, description);
}

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_OPEN_TILE_CUH_
