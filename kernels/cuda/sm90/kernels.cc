#include "kernels/cuda/sm90/kernels.h"

#include <iterator>

#include "kernels/cuda/sm90/config.h"

namespace attnd::cuda::sm90 {
namespace {

// As kForwardShapes, whose order is from small to large; CMakeLists.txt must
// stamp them all.
template <DType kDType>
const Kernel* ForDims(int64_t head_dim, int64_t value_dim) {
  static const Kernel kernels[] = {
      MakeForward<kDType, 64, 64>(),   MakeForward<kDType, 96, 96>(),
      MakeForward<kDType, 128, 128>(), MakeForward<kDType, 192, 128>(),
      MakeForward<kDType, 192, 192>(), MakeForward<kDType, 256, 256>()};
  static_assert(std::size(kernels) == std::size(kForwardShapes));
  for (size_t i = 0; i < std::size(kernels); ++i) {
    if (head_dim <= kForwardShapes[i].dim &&
        value_dim <= kForwardShapes[i].value_dim) {
      return &kernels[i];
    }
  }
  return nullptr;
}

}  // namespace

const Kernel* FindForward(const Problem& p) {
  if (p.head_dim % 8 != 0 || p.value_dim % 8 != 0) return nullptr;
  if (p.kv.size() > kMostSegments) return nullptr;
  switch (p.dtype()) {
    case DType::kF16:
      return ForDims<DType::kF16>(p.head_dim, p.value_dim);
    case DType::kBF16:
      return ForDims<DType::kBF16>(p.head_dim, p.value_dim);
    case DType::kF32:
      break;
  }
  return nullptr;
}

}  // namespace attnd::cuda::sm90
