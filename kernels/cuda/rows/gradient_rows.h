#ifndef ATTND_KERNELS_CUDA_ROWS_GRADIENT_ROWS_H_
#define ATTND_KERNELS_CUDA_ROWS_GRADIENT_ROWS_H_

// The kernels that backward begins and ends with (prepare_rows.cu and
// finish_dq.cu). A block of threads has kGradientRows rows of a head.

#include "kernels/attention.h"
#include "kernels/cuda/launch/kernel.h"

namespace attnd::cuda {

// Fills the scratch that DeviceGradients describes, for inputs of `dtype`: each
// row's LSE in the kernels' units, delta (E11) less the gradient of LSE, and
// zeros where dQ will be summed up. Says where LSE is huge, and writes natural
// LSE where it is needed. For deterministic problems it sets up the turns.
const Kernel& PrepareRowsKernel(DType dtype);

// (E17): makes dQ from its sums, scaled and rounded.
const Kernel& FinishDqKernel();

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_ROWS_GRADIENT_ROWS_H_
