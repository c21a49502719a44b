#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_TENSOR_MAPS_H_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_TENSOR_MAPS_H_

// What the copy engine needs to know of a backward problem's inputs.

#include <optional>

#include "kernels/attention.h"
#include "kernels/cuda/sm90/tensor_maps.h"

namespace attnd::cuda::sm90 {

// dO's map stands where forward has O's.
inline constexpr int kMapDo = kMapO;
// Rows of every box. A tile of more rows is loaded as several boxes.
inline constexpr int kMapRows = 64;

// The maps for backward, in boxes of 64 columns by kMapRows rows. Nothing if
// the copy engine cannot read an input's layout, or an input is empty.
std::optional<TensorMaps> MakeBackwardMaps(const BackwardArgs& args);

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_TENSOR_MAPS_H_
