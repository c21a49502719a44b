#include "kernels/cuda/fused/sliced_chunks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cuda/device/status.h"
#include "kernels/cuda/fused/slices.h"

namespace attnd::cuda {
namespace {

double MostMicros(absl::Span<const Chunk> chunks) {
  double micros = 0;
  for (const Chunk& chunk : chunks) {
    for (const Launch& launch : chunk.launches) micros += MostMicros(launch);
  }
  return micros;
}

class SlicedChunks : public Rest {
 public:
  SlicedChunks(Chunks chunks, double all_micros, double slice_micros,
               int least_waves, const Gpu& gpu, Workspace& workspace)
      : chunks_(std::move(chunks)),
        all_micros_(all_micros),
        slice_micros_(slice_micros),
        least_waves_(least_waves),
        gpu_(gpu),
        workspace_(workspace) {}

  absl::Status EnqueueSlice() override {
    double left = slice_micros_;
    absl::Status status;
    while (status.ok() && chunk_ < chunks_.size() && (left > 0 || IsAtEnd())) {
      status = EnqueueSome(left);
    }
    return Broken(std::move(status));
  }

  double share() const override {
    if (chunk_ == chunks_.size()) return 1;
    // It is less, but for roundings.
    return std::min(0.999, done_micros_ / all_micros_);
  }

 private:
  // Of a chunk.
  bool IsAtEnd() const {
    return begun_ && launch_ == chunks_[chunk_].launches.size();
  }

  // Enqueues of one launch what `left` allows, and moves on.
  absl::Status EnqueueSome(double& left) {
    const Chunk& chunk = chunks_[chunk_];
    if (!begun_) {
      params_ = {};
      absl::Status status = BeginChunk(chunk, workspace_, params_, counts_);
      if (!status.ok()) return status;
      begun_ = true;
    }
    if (launch_ == chunk.launches.size()) {
      ++chunk_;
      launch_ = 0;
      begun_ = false;
      return absl::OkStatus();
    }
    const Launch& launch = chunk.launches[launch_];
    MoveTo(launch, AfterCancelled(launch, tile_));
    absl::Status status;
    if (tile_ < launch.tiles()) {
      const Slice slice = CutSlice(launch, tile_, left, gpu_, least_waves_);
      status = EnqueueTiles(launch, tile_, slice.end, params_, gpu_,
                            workspace_.stream(), counts_);
      left -= slice.micros;
      MoveTo(launch, slice.end);
    }
    if (tile_ == launch.tiles()) {
      tile_ = 0;
      ++launch_;
    }
    return status;
  }

  void MoveTo(const Launch& launch, int64_t tile) {
    if (tile == tile_) return;
    done_micros_ += MostMicros(launch) * static_cast<double>(tile - tile_) /
                    static_cast<double>(launch.tiles());
    tile_ = tile;
  }

  const Chunks chunks_;
  const double all_micros_, slice_micros_;
  const int least_waves_;
  const Gpu gpu_;
  Workspace& workspace_;
  // What comes next: a tile of a launch of a chunk, which has begun or not.
  size_t chunk_ = 0, launch_ = 0;
  int64_t tile_ = 0;
  bool begun_ = false;
  double done_micros_ = 0;
  LaunchParams params_;  // of the chunk
  LaunchCounts counts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Rest>> BeginChunks(Chunks chunks, const Gpu& gpu,
                                                  Workspace& workspace,
                                                  const SliceOptions& options) {
  const double slice_micros =
      absl::ToDoubleMicroseconds(options.time) * gpu.multiprocessors;
  const double all_micros = MostMicros(chunks);
  if (all_micros <= kMostAtOnce * slice_micros) {
    const auto counts = EnqueueChunks(chunks, gpu, workspace);
    if (!counts.ok()) return counts.status();
    return nullptr;
  }
  absl::Status status = PrepareChunks(chunks, workspace);
  if (!status.ok()) return status;
  return BeginRest(std::make_unique<SlicedChunks>(
      std::move(chunks), all_micros, slice_micros, options.least_waves, gpu,
      workspace));
}

}  // namespace attnd::cuda
