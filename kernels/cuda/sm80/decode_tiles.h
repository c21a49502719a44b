#ifndef ATTND_KERNELS_CUDA_SM80_DECODE_TILES_H_
#define ATTND_KERNELS_CUDA_SM80_DECODE_TILES_H_

// What the host decides for the kernels that decode: how a problem's few
// queries and many columns are cut into tiles. config.h has the sizes.

#include "kernels/attention.h"
#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/kernel.h"
#include "kernels/cuda/launch/launch.h"

namespace attnd::cuda::sm80 {

// The tiles of a problem with sequences to be decoded (KindsOf). Every sequence
// has as many; the kernel skips those of sequences that are not to be decoded.
Tiles DecodeTiles(const Problem& problem);

// What blocks that decode the problem may read before they know anything else,
// if it is the only one of its launch; nothing (no columns) where they must
// look at the problem first.
ReadAhead DecodeAhead(const Problem& problem, const Kernel& kernel);

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_DECODE_TILES_H_
