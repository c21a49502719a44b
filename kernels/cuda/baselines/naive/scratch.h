#ifndef ATTND_KERNELS_CUDA_BASELINES_NAIVE_SCRATCH_H_
#define ATTND_KERNELS_CUDA_BASELINES_NAIVE_SCRATCH_H_

// How forward and backward of naive attention cut up their scratch.

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/cuda/baselines/naive/steps.h"
#include "kernels/cuda/launch/descriptor.h"

namespace attnd::cuda {

// Every row of a matrix is a multiple of 16 bytes, whatever its type.
inline constexpr int64_t kPitchElements = 8;

class ScratchCutter {
 public:
  explicit ScratchCutter(std::byte* scratch) : next_(scratch) {}

  // `count` elements from a multiple of kTensorAlignment on.
  void* Take(int64_t count, DType dtype) {
    std::byte* const at = next_;
    next_ += (count * SizeOf(dtype) + kTensorAlignment - 1) / kTensorAlignment *
             kTensorAlignment;
    return at;
  }
  float* TakeFloats(int64_t count) {
    return static_cast<float*>(Take(count, DType::kF32));
  }

 private:
  std::byte* next_;
};

// The problem's rows, without m and l.
inline NaiveRows PlaceRows(const Problem& p, BlobOffset problem) {
  NaiveRows x;
  x.rows = p.batch * p.q_heads * p.q_len;
  x.columns = PaddedKvLen(p);
  x.pitch = (x.columns + kPitchElements - 1) / kPitchElements * kPitchElements;
  x.dtype = p.dtype();
  x.problem = problem;
  return x;
}

// How many rows there are, and elements of a matrix at most: in double, so that
// nothing overflows.
inline double RowCount(const Problem& p) {
  return static_cast<double>(p.batch) * static_cast<double>(p.q_heads) *
         static_cast<double>(p.q_len);
}
inline double MatrixElements(const Problem& p) {
  double columns = kPitchElements;
  for (const KvSegment& s : p.kv) columns += static_cast<double>(s.len);
  return RowCount(p) * columns;
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_NAIVE_SCRATCH_H_
