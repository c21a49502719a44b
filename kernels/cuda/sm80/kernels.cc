#include "kernels/cuda/sm80/kernels.h"

#include "kernels/cuda/sm80/config.h"

namespace attnd::cuda::sm80 {
namespace {

// CMakeLists.txt must stamp these dims.
template <Kind kKind, DType kDType>
const Kernel& ForDim(int64_t head_dim, int64_t value_dim) {
  static const Kernel kernels[] = {
      MakeKernel<kKind, kDType, 64>(), MakeKernel<kKind, kDType, 96>(),
      MakeKernel<kKind, kDType, 128>(), MakeKernel<kKind, kDType, 192>(),
      MakeKernel<kKind, kDType, 256>()};
  const int dim = RoundedDim(head_dim, value_dim);
  for (const Kernel& kernel : kernels) {
    if (kernel.dim == dim) return kernel;
  }
  return kernels[4];
}

const Kernel& ForFloat32(int64_t head_dim, int64_t value_dim) {
  static const Kernel kernels[] = {
      MakeKernel<Kind::kFloat32, DType::kF32, 64>(),
      MakeKernel<Kind::kFloat32, DType::kF32, 128>(),
      MakeKernel<Kind::kFloat32, DType::kF32, 256>()};
  const int dim = RoundedDim(head_dim, value_dim);
  return kernels[dim <= 64 ? 0 : dim <= 128 ? 1 : 2];
}

}  // namespace

const Kernel& FindKernel(Kind kind, DType dtype, int64_t head_dim,
                         int64_t value_dim) {
  if (kind == Kind::kFloat32) return ForFloat32(head_dim, value_dim);
  if (kind == Kind::kPrefill) {
    return dtype == DType::kF16
               ? ForDim<Kind::kPrefill, DType::kF16>(head_dim, value_dim)
               : ForDim<Kind::kPrefill, DType::kBF16>(head_dim, value_dim);
  }
  return dtype == DType::kF16
             ? ForDim<Kind::kDecode, DType::kF16>(head_dim, value_dim)
             : ForDim<Kind::kDecode, DType::kBF16>(head_dim, value_dim);
}

}  // namespace attnd::cuda::sm80
