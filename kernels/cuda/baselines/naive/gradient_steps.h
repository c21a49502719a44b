#ifndef ATTND_KERNELS_CUDA_BASELINES_NAIVE_GRADIENT_STEPS_H_
#define ATTND_KERNELS_CUDA_BASELINES_NAIVE_GRADIENT_STEPS_H_

// The steps of naive backward between its products: one kernel each. Matrices
// are f32 [rows, columns] unless they are void, which are in the inputs' type.
// There is at least one row.

#include <cuda_runtime_api.h>

#include "kernels/cuda/baselines/naive/steps.h"
#include "kernels/cuda/launch/descriptor.h"

namespace attnd::cuda {

struct NaiveGradientRows : NaiveRows {
  float* delta = nullptr;    // [rows]: (E11) less the gradient of LSE
  BlobOffset gradients = 0;  // DeviceGradients in the launch's block
};

// delta, 0 of rows that are empty or past their sequence's length. If there is
// an `l`, that too, from m and LSE by (E7), +inf of these rows.
cudaError_t LaunchRowTerms(const LaunchParams& params,
                           const NaiveGradientRows& x, cudaStream_t stream);

// (E12), rounded, from the products Q K^T; 0 where a row sees nothing.
cudaError_t LaunchProbabilities(const LaunchParams& params,
                                const NaiveGradientRows& x,
                                const float* products, void* p,
                                cudaStream_t stream);

// (E15) and (E16), rounded, with P found again from the products, since P as
// rounded is not exact enough. dX may lie where dP does, if it is f32.
cudaError_t LaunchScoreGradient(const LaunchParams& params,
                                const NaiveGradientRows& x,
                                const float* products, const float* dp,
                                void* dx, cudaStream_t stream);

// What the steps of forward give to what they have read, see naive_backward.h.
// dE = dP / l, and 0 where a row sees nothing.
cudaError_t LaunchDivideGradient(const LaunchParams& params,
                                 const NaiveGradientRows& x, const float* dp,
                                 float* de, cudaStream_t stream);
// dE += dl.
cudaError_t LaunchSumGradient(const NaiveGradientRows& x, float* de,
                              cudaStream_t stream);
// dD = dE E.
cudaError_t LaunchExpGradient(const NaiveGradientRows& x, const float* de,
                              const float* e, float* dd, cudaStream_t stream);
// dX from dS, (E16), rounded. Reads the products only for a softcap.
cudaError_t LaunchScaleGradient(const LaunchParams& params,
                                const NaiveGradientRows& x,
                                const float* products, const float* ds,
                                void* dx, cudaStream_t stream);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_NAIVE_GRADIENT_STEPS_H_
