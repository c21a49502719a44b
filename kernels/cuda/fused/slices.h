#ifndef ATTND_KERNELS_CUDA_FUSED_SLICES_H_
#define ATTND_KERNELS_CUDA_FUSED_SLICES_H_

// Cuts launches into slices of about the same time. A slice is a range of the
// launch's tiles in the order in which blocks of threads take them, so that
// nothing of what decides a result's bits knows of it: kernels, tiles, their
// places and turns are those of the whole launch. Knows no CUDA.

#include <cstdint>

#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/launch/launch.h"

namespace attnd::cuda {

// Times are microseconds of one multiprocessor, estimated.
//
// What all tiles of a launch take if no mask hides anything. O(problems).
double MostMicros(const Launch& launch);

// The first tile from `tile` on whose problem has not been cancelled; the
// launch's number of tiles if there is none. The problems must still be there.
int64_t AfterCancelled(const Launch& launch, int64_t tile);

// The tiles from some first one up to `end`.
struct Slice {
  int64_t end = 0;
  double micros = 0;
};
// The slice from tile `first` on that takes `micros`, or as much as there is.
// It takes longer where that makes it end with a whole wave of tiles, of which
// it has `least_waves` (see SliceOptions), or as many as take sixteen times
// `micros`, with a whole sequence that is decoded in parts, or with the launch.
// The problems must still be there.
Slice CutSlice(const Launch& launch, int64_t first, double micros,
               const Gpu& gpu, int least_waves);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_FUSED_SLICES_H_
