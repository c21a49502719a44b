#ifndef ATTND_KERNELS_CUDA_TILE_SEQUENCE_H_
#define ATTND_KERNELS_CUDA_TILE_SEQUENCE_H_

// Device code that reads the block of descriptors (descriptor.h): one sequence
// of a problem in it. Its mask is a RowIntervals (mask.h), as everywhere.

#include <cstdint>

#include "kernels/cuda/launch/descriptor.h"
#include "kernels/mask.h"

namespace attnd::cuda {

// The block that a launch was given. `params` must be a __grid_constant__, as
// the block may lie inside it.
__device__ inline const std::byte* BlobOf(const LaunchParams& params) {
  return params.blob != nullptr ? params.blob : params.inline_blob;
}

// What lies at `offset` in the block.
template <class T>
__device__ const T* At(const std::byte* blob, BlobOffset offset) {
  return reinterpret_cast<const T*>(blob + offset);
}

// The value of sequence b: from the array int64_t[batch] at `values`, or
// `otherwise` if there is none.
__device__ inline int64_t Of(const std::byte* blob, BlobOffset values,
                             int64_t b, int64_t otherwise) {
  return values == 0 ? otherwise : At<int64_t>(blob, values)[b];
}

// Sequence b of a problem: its own lengths, and the position of its row 0.
struct Sequence {
  const std::byte* blob;
  const DeviceProblem* problem;
  const DeviceSegment* segments;
  int64_t b;
  int64_t q_len;
  int64_t kv_len;  // its columns in all segments together
  int64_t q_start;

  __device__ const DeviceSegment& segment(int n) const { return segments[n]; }
  // The sequence's columns in segment n.
  __device__ int64_t Len(int n) const {
    const DeviceSegment& s = segment(n);
    return Of(blob, s.lens, b, s.len);
  }
  // What rows see of segment n, as MakeRowIntervals in mask.h.
  __device__ RowIntervals Intervals(int n) const {
    const DeviceSegment& s = segment(n);
    RowIntervals r;
    r.rows = q_len;
    r.columns = Len(n);
    r.q_start = q_start;
    r.q_stride = problem->q_stride;
    r.kv_start = Of(blob, s.starts, b, s.start);
    r.kv_stride = s.stride;
    r.left = problem->left;
    r.right = problem->right;
    return r;
  }
};

// `problem` and `segments` may be copies in shared memory; the arrays that they
// name are in the block.
__device__ inline Sequence MakeSequence(const std::byte* blob,
                                        const DeviceProblem& problem,
                                        const DeviceSegment* segments,
                                        int64_t b) {
  Sequence s{blob, &problem, segments, b};
  s.q_len = Of(blob, problem.q_lens, b, problem.q_len);
  s.kv_len = 0;
  for (int n = 0; n < problem.num_segments; ++n) s.kv_len += s.Len(n);
  s.q_start = problem.q_starts != 0 || problem.has_q_start
                  ? Of(blob, problem.q_starts, b, problem.q_start)
                  : s.kv_len - s.q_len;
  return s;
}
__device__ inline Sequence MakeSequence(const std::byte* blob,
                                        const DeviceProblem& problem,
                                        int64_t b) {
  return MakeSequence(blob, problem, At<DeviceSegment>(blob, problem.segments),
                      b);
}

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_TILE_SEQUENCE_H_
