#ifndef ATTND_KERNELS_CUDA_SM80_PARTIALS_H_
#define ATTND_KERNELS_CUDA_SM80_PARTIALS_H_

namespace attnd::cuda::sm80 {

// A record is the state of one row after one part of the columns
// (partials.cuh), f32 [kRecordA + dim]: m at 0, l at 1, a from kRecordA on.
inline constexpr int kRecordA = 4;
constexpr int RecordFloats(int dim) { return kRecordA + dim; }

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_PARTIALS_H_
