#include "kernels/cuda/sm80/kernels.h"

#include "kernels/cuda/sm80/config.h"

namespace attnd::cuda::sm80 {
namespace {

// CMakeLists.txt stamps an instance of each of these dims.
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

// The same for backward, whose kernels have the same dims.
template <DType kDType, Memory kMemory>
const Kernel& BackwardForDim(int64_t head_dim, int64_t value_dim) {
  static const Kernel kernels[] = {MakeBackwardKernel<kDType, 64, kMemory>(),
                                   MakeBackwardKernel<kDType, 96, kMemory>(),
                                   MakeBackwardKernel<kDType, 128, kMemory>(),
                                   MakeBackwardKernel<kDType, 192, kMemory>(),
                                   MakeBackwardKernel<kDType, 256, kMemory>()};
  const int dim = RoundedDim(head_dim, value_dim);
  for (const Kernel& kernel : kernels) {
    if (kernel.dim == dim) return kernel;
  }
  return kernels[4];
}

template <DType kDType>
const Kernel& BackwardFor16Bits(int64_t head_dim, int64_t value_dim,
                                int shared_bytes) {
  const Kernel& large =
      BackwardForDim<kDType, Memory::kLarge>(head_dim, value_dim);
  const int blocks = BackwardShapeOf(large.dim, Memory::kLarge).blocks_per_sm;
  // CUDA keeps 1 KiB of shared memory for itself in each block, and a
  // multiprocessor has 1 KiB more than its largest block may use.
  constexpr int kSystemBytes = 1 << 10;
  return blocks * (large.shared_bytes + kSystemBytes) <=
                 shared_bytes + kSystemBytes
             ? large
             : BackwardForDim<kDType, Memory::kSmall>(head_dim, value_dim);
}

const Kernel& BackwardForFloat32(int64_t head_dim, int64_t value_dim) {
  static const Kernel kernels[] = {
      MakeBackwardKernel<DType::kF32, 64, Memory::kSmall>(),
      MakeBackwardKernel<DType::kF32, 128, Memory::kSmall>(),
      MakeBackwardKernel<DType::kF32, 256, Memory::kSmall>()};
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

const Kernel& FindBackwardKernel(DType dtype, int64_t head_dim,
                                 int64_t value_dim, int shared_bytes) {
  switch (dtype) {
    case DType::kF32:
      return BackwardForFloat32(head_dim, value_dim);
    case DType::kF16:
      return BackwardFor16Bits<DType::kF16>(head_dim, value_dim, shared_bytes);
    case DType::kBF16:
      break;
  }
  return BackwardFor16Bits<DType::kBF16>(head_dim, value_dim, shared_bytes);
}

}  // namespace attnd::cuda::sm80
