#include "kernels/cuda/fused/slices.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/fused/tile_times.h"
#include "kernels/cuda/launch/wanted.h"

namespace attnd::cuda {
namespace {

// A multiprocessor has place for two blocks of most kernels that do not stay.
constexpr int64_t kBlocksTogether = 2;
// What would be left is taken along if it is less than this part of the slice.
constexpr int64_t kCrumb = 4;
// Waves make a slice so many times as long as it should be, and no longer: over
// half a million columns a wave alone takes a tenth of a second, and who is
// cancelled or paused would wait for 16 of them.
constexpr double kMostForWaves = 16;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// The run that has the tile.
int RunOf(const Launch& launch, int64_t tile) {
  int first = 0, end = launch.num_runs();
  while (end - first > 1) {
    const int middle = first + (end - first) / 2;
    (launch.placed(middle).first_tile <= tile ? first : end) = middle;
  }
  return first;
}

int64_t Wave(const Kernel& kernel, const Gpu& gpu) {
  const int64_t clusters =
      std::max<int64_t>(gpu.multiprocessors / kernel.cluster, 1);
  return kernel.persistent ? clusters : kBlocksTogether * clusters;
}

// Tiles of a problem that leave partial results for each other: a sequence's.
int64_t Grain(const Tiles& tiles) {
  return tiles.parts > 1 ? tiles.count() / tiles.problem->batch : 1;
}

// How many waves a slice that should take `micros` has at least. `slice`, from
// tile `first` on, tells how long a tile takes.
int64_t Waves(const Slice& slice, int64_t first, double micros, int64_t wave,
              int least_waves) {
  const double tile = slice.micros / static_cast<double>(slice.end - first);
  const double most =
      kMostForWaves * micros / (tile * static_cast<double>(wave));
  return static_cast<int64_t>(
      std::clamp(most, 1.0, static_cast<double>(least_waves)));
}

// Where the tiles [first, end) of a launch had better end.
int64_t WellEnd(const Launch& launch, int64_t first, int64_t end, int64_t wave,
                int64_t least_waves) {
  end = first + std::max(RoundUp(end - first, wave), least_waves * wave);
  if (end >= launch.tiles()) return launch.tiles();
  const Launch::Placed run = launch.placed(RunOf(launch, end));
  end = run.first_tile + RoundUp(end - run.first_tile, Grain(run.tiles));
  return launch.tiles() - end < (end - first) / kCrumb ? launch.tiles() : end;
}

}  // namespace

double MostMicros(const Launch& launch) {
  double micros = 0;
  for (int n = 0; n < launch.num_runs(); ++n) {
    const Tiles& tiles = launch.placed(n).tiles;
    micros += static_cast<double>(tiles.count()) *
              TileTimes(launch.kernel(), tiles).most();
  }
  return micros;
}

int64_t AfterCancelled(const Launch& launch, int64_t tile) {
  for (int n = RunOf(launch, tile); n < launch.num_runs(); ++n) {
    const Launch::Placed run = launch.placed(n);
    if (!Cancelled(*run.tiles.problem)) return tile;
    tile = run.first_tile + run.tiles.count();
  }
  return launch.tiles();
}

Slice CutSlice(const Launch& launch, int64_t first, double micros,
               const Gpu& gpu, int least_waves) {
  Slice slice{first, 0};
  for (int n = RunOf(launch, first);
       n < launch.num_runs() && slice.micros < micros; ++n) {
    const Launch::Placed run = launch.placed(n);
    const int64_t end = run.first_tile + run.tiles.count();
    TileTimes times(launch.kernel(), run.tiles);
    while (slice.end < end && slice.micros < micros) {
      const TileTimes::Alike alike = times.From(slice.end - run.first_tile);
      const double wanted = std::ceil((micros - slice.micros) / alike.micros);
      const int64_t count = static_cast<int64_t>(
          std::min(static_cast<double>(alike.count), std::max(wanted, 1.0)));
      slice.end += count;
      slice.micros += static_cast<double>(count) * alike.micros;
    }
  }
  if (slice.end < launch.tiles()) {
    const int64_t wave = Wave(launch.kernel(), gpu);
    const int64_t waves = Waves(slice, first, micros, wave, least_waves);
    slice.end = WellEnd(launch, first, slice.end, wave, waves);
    slice.micros = micros;  // or more, and then a slice has nothing else
  }
  return slice;
}

}  // namespace attnd::cuda
