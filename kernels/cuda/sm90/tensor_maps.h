#ifndef ATTND_KERNELS_CUDA_SM90_TENSOR_MAPS_H_
#define ATTND_KERNELS_CUDA_SM90_TENSOR_MAPS_H_

// What the copy engine (TMA) needs to know of a problem's tensors. Made on the
// host; kernels find the maps in the block of descriptors.

#include <cuda.h>

#include <optional>

#include "absl/container/inlined_vector.h"
#include "kernels/attention.h"

namespace attnd::cuda::sm90 {

// Which of a problem's maps is whose: Q's, O's, then K's and V's per segment.
inline constexpr int kMapQ = 0, kMapO = 1;
constexpr int KMap(int segment) { return 2 + 2 * segment; }
constexpr int VMap(int segment) { return 3 + 2 * segment; }

struct TensorMaps {
  absl::InlinedVector<CUtensorMap, VMap(0) + 1> maps;
  // Whether maps[kMapO] may be used: the copy engine can write O's type and
  // layout.
  bool has_o = false;
};

// The maps for forward, each of a tensor [batch, heads, tokens, dim]. Boxes are
// 64 of dim by kConsumerRows tokens of Q, kWarpRows of O, or `cols` of K and V.
// Nothing if the copy engine cannot read an input's layout, or the driver
// cannot make maps.
std::optional<TensorMaps> MakeTensorMaps(const ForwardArgs& args, int cols);

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_TENSOR_MAPS_H_
