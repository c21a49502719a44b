#ifndef ATTND_KERNELS_CUDA_ROWS_GRADIENT_ROWS_H_
#define ATTND_KERNELS_CUDA_ROWS_GRADIENT_ROWS_H_

// The kernels that backward begins and ends with (prepare_rows.cu and
// finish_dq.cu), a block of threads for kGradientRows rows of a head.

#include "kernels/attention.h"
#include "kernels/cuda/launch/kernel.h"

namespace attnd::cuda {

// What a row's P and dS are made of: LSE and delta (E11), in the launch's
// scratch, and whether LSE is huge, which is in natural units then; zeros where
// dQ is to be summed up; and, of deterministic problems, whose turn it is when.
const Kernel& PrepareRowsKernel(DType dtype);

// (E17): dQ from its sums, scaled and rounded.
const Kernel& FinishDqKernel();

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_ROWS_GRADIENT_ROWS_H_
