#ifndef ATTND_KERNELS_CUDA_SM90_TENSOR_MAPS_H_
#define ATTND_KERNELS_CUDA_SM90_TENSOR_MAPS_H_

// What the copy engine needs to know of a problem's tensors.

#include <cuda.h>

#include <optional>

#include "absl/container/inlined_vector.h"
#include "kernels/attention.h"

namespace attnd::cuda::sm90 {

// Where a problem's maps are: Q's, O's, then K's and V's of each segment.
inline constexpr int kMapQ = 0, kMapO = 1;
constexpr int KMap(int segment) { return 2 + 2 * segment; }
constexpr int VMap(int segment) { return 3 + 2 * segment; }

struct TensorMaps {
  absl::InlinedVector<CUtensorMap, VMap(0) + 1> maps;
  bool has_o = false;  // else O is not laid out as the copy engine can write it
};

// Maps with boxes of 64 columns by a consumer's rows of Q, a warp's rows of O,
// or `cols` of K and V. Nothing if an input is not laid out as the copy engine
// can read it, or there is none.
std::optional<TensorMaps> MakeTensorMaps(const ForwardArgs& args, int cols);

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_TENSOR_MAPS_H_
