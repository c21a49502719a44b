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
               int least_waves, const Gpu& gpu, Workspace& workspace,
               std::function<bool()> cancelled)
      : chunks_(std::move(chunks)),
        all_micros_(all_micros),
        slice_micros_(slice_micros),
        least_waves_(least_waves),
        gpu_(gpu),
        workspace_(workspace),
        cancelled_(std::move(cancelled)) {}

  absl::Status EnqueueSlice() override {
    if (cancelled_()) chunk_ = chunks_.size();
    double left = slice_micros_;
    absl::Status status;
    while (status.ok() && left > 0 && chunk_ < chunks_.size()) {
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
  // Enqueues of one launch what `left` allows, and moves on.
  absl::Status EnqueueSome(double& left) {
    const Chunk& chunk = chunks_[chunk_];
    if (launch_ == 0 && tile_ == 0) {
      params_ = {};
      absl::Status status = BeginChunk(chunk, workspace_, params_, counts_);
      if (!status.ok()) return status;
    }
    if (launch_ < chunk.launches.size()) {
      const Launch& launch = chunk.launches[launch_];
      const Slice slice = CutSlice(launch, tile_, left, gpu_, least_waves_);
      absl::Status status = EnqueueTiles(launch, tile_, slice.end, params_,
                                         gpu_, workspace_.stream(), counts_);
      if (!status.ok()) return status;
      left -= slice.micros;
      MoveTo(launch, slice.end);
    }
    if (launch_ == chunk.launches.size()) {
      ++chunk_;
      launch_ = 0;
    }
    return absl::OkStatus();
  }

  // To a tile of the launch, or from its end to the next one.
  void MoveTo(const Launch& launch, int64_t tile) {
    if (launch.tiles() > 0) {
      done_micros_ += MostMicros(launch) * static_cast<double>(tile - tile_) /
                      static_cast<double>(launch.tiles());
    }
    tile_ = tile;
    if (tile_ < launch.tiles()) return;
    tile_ = 0;
    ++launch_;
  }

  const Chunks chunks_;
  const double all_micros_, slice_micros_;
  const int least_waves_;
  const Gpu gpu_;
  Workspace& workspace_;
  const std::function<bool()> cancelled_;
  // What comes next: a tile of a launch of a chunk.
  size_t chunk_ = 0, launch_ = 0;
  int64_t tile_ = 0;
  double done_micros_ = 0;
  LaunchParams params_;  // of the chunk
  LaunchCounts counts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Rest>> BeginChunks(
    Chunks chunks, const Gpu& gpu, Workspace& workspace,
    const SliceOptions& options, std::function<bool()> cancelled) {
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
      workspace, std::move(cancelled)));
}

}  // namespace attnd::cuda
