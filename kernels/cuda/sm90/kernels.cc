#include "kernels/cuda/sm90/kernels.h"

#include <cstdint>
#include <iterator>

#include "absl/types/span.h"
#include "kernels/cuda/sm90/backward/config.h"
#include "kernels/cuda/sm90/config.h"

namespace attnd::cuda::sm90 {
namespace {

// A kernel for each of kForwardShapes, in the same order, from small to large.
// CMakeLists.txt must stamp them all.
template <DType kDType>
absl::Span<const Kernel> Kernels() {
  static const Kernel kernels[] = {MakeForward<kDType, 64, 64, 0>(),
                                   MakeForward<kDType, 64, 64, kLong>(),
                                   MakeForward<kDType, 96, 96, 0>(),
                                   MakeForward<kDType, 128, 128, 0>(),
                                   MakeForward<kDType, 192, 128, 0>(),
                                   MakeForward<kDType, 192, 192, 0>(),
                                   MakeForward<kDType, 256, 256, 0>(),
                                   MakeForward<kDType, 256, 256, kLong>()};
  static_assert(std::size(kernels) == std::size(kForwardShapes));
  return kernels;
}

bool TakesSome(const ForwardShape& shape, const Problem& p) {
  for (int64_t b = 0; b < p.batch; ++b) {
    if (shape.Takes(KvLen(p, b))) return true;
  }
  return false;
}

// Which of kForwardShapes the problem's sequences run in.
absl::InlinedVector<size_t, 2> ShapesOf(const Problem& p) {
  absl::InlinedVector<size_t, 2> found;
  if (p.dtype() == DType::kF32 || p.head_dim % 8 != 0 || p.value_dim % 8 != 0 ||
      p.kv.size() > kMostSegments) {
    return found;
  }
  const ForwardShape* dims = nullptr;  // the smallest that the problem fits
  for (size_t i = 0; i < std::size(kForwardShapes); ++i) {
    const ForwardShape& shape = kForwardShapes[i];
    if (p.head_dim > shape.dim || p.value_dim > shape.value_dim) continue;
    if (dims == nullptr) dims = &shape;
    if (shape.dim == dims->dim && shape.value_dim == dims->value_dim &&
        TakesSome(shape, p)) {
      found.push_back(i);
    }
  }
  return found;
}

// A kernel for each of kBackwardShapes, likewise.
template <DType kDType>
absl::Span<const Kernel> BackwardKernels() {
  static const Kernel kernels[] = {
      MakeBackward<kDType, 64, 64>(),   MakeBackward<kDType, 96, 96>(),
      MakeBackward<kDType, 128, 128>(), MakeBackward<kDType, 192, 128>(),
      MakeBackward<kDType, 192, 192>(), MakeBackward<kDType, 256, 256>()};
  static_assert(std::size(kernels) == std::size(kBackwardShapes));
  return kernels;
}

// The host's ScoreRule::plain: whether scores are products times a moderate
// scale, and no more.
bool HasPlainScores(const Problem& p) {
  return !p.bias && !p.softcap.has_value() && p.scale >= 0x1p-40f &&
         p.scale <= 0x1p40f;
}

}  // namespace

const Kernel* FindBackward(const Problem& p) {
  if (p.dtype() == DType::kF32 || p.head_dim % 8 != 0 || p.value_dim % 8 != 0 ||
      p.kv.size() > kMostSegments || !HasPlainScores(p)) {
    return nullptr;
  }
  const absl::Span<const Kernel> kernels =
      p.dtype() == DType::kF16 ? BackwardKernels<DType::kF16>()
                               : BackwardKernels<DType::kBF16>();
  for (size_t i = 0; i < kernels.size(); ++i) {
    const BackwardShape& shape = kBackwardShapes[i];
    if (p.head_dim <= shape.dim && p.value_dim <= shape.value_dim) {
      return &kernels[i];
    }
  }
  return nullptr;
}

absl::InlinedVector<const Kernel*, 2> FindForward(const Problem& p) {
  absl::InlinedVector<const Kernel*, 2> found;
  for (size_t i : ShapesOf(p)) {
    found.push_back(p.dtype() == DType::kF16 ? &Kernels<DType::kF16>()[i]
                                             : &Kernels<DType::kBF16>()[i]);
  }
  return found;
}

int64_t LeastColumns(const Problem& p) {
  for (size_t i : ShapesOf(p)) return kForwardShapes[i].from;
  return 0;
}

}  // namespace attnd::cuda::sm90
