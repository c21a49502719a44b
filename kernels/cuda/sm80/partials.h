#ifndef ATTND_KERNELS_CUDA_SM80_PARTIALS_H_
#define ATTND_KERNELS_CUDA_SM80_PARTIALS_H_

namespace attnd::cuda::sm80 {

// Floats of a record, what one part of the columns makes of a row: m and l at 0
// and 1, a from kRecordA on. See partials.cuh.
inline constexpr int kRecordA = 4;
constexpr int RecordFloats(int dim) { return kRecordA + dim; }

}  // namespace attnd::cuda::sm80

#endif  // ATTND_KERNELS_CUDA_SM80_PARTIALS_H_
