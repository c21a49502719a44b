#ifndef ATTND_KERNELS_CUDA_BASELINES_BASELINE_SCORE_CUH_
#define ATTND_KERNELS_CUDA_BASELINES_BASELINE_SCORE_CUH_

// (E1), (E2) and (E16) of kernels/README.md for the baselines: as the reference
// computes them, in natural units.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/tile/element.cuh"
#include "kernels/cuda/tile/score.cuh"

namespace attnd::cuda {

inline constexpr float kMinusInfinity = -INFINITY;

// The larger one, or NaN: a NaN score must not look like an empty row.
__device__ inline float MaxOrNan(float a, float b) {
  return a != a || b <= a ? a : b;
}

// Makes scores of the products q . k of one sequence and q head.
class Scores {
 public:
  __device__ Scores(const DeviceProblem& problem, int64_t b, int64_t h)
      : problem_(problem),
        bias_(b * problem.bias.batch_stride + h * problem.bias.head_stride) {}

  // The score of row i and `column`, which counts the tokens of all segments,
  // padding included. Each step is rounded: one kernel must not fuse what
  // another does not.
  __device__ float operator()(float dot, int64_t i, int64_t column) const {
    float x = Scaled(dot);
    if (problem_.softcap != 0.0f)  // (E2)
      x = __fmul_rn(problem_.softcap, tanhf(x / problem_.softcap));
    const BiasView& bias = problem_.bias;
    if (bias.data != nullptr)
      x = AddBias(x, LoadAny(bias.data, bias.dtype,
                             bias_ + i * bias.row_stride + column));
    return x;
  }

  // The factor that makes dX of dS, (E16).
  __device__ float Slope(float dot) const {
    if (problem_.softcap == 0.0f) return 1.0f;
    // 1 - tanh^2, without its cancellation.
    const float e = expf(-2.0f * fabsf(Scaled(dot) / problem_.softcap));
    return 4.0f * e / ((1.0f + e) * (1.0f + e));
  }

 private:
  __device__ float Scaled(float dot) const {
    return WithinRange(__fmul_rn(problem_.scale, dot));  // (E1)
  }

  const DeviceProblem& problem_;
  const int64_t bias_;  // where the bias of row 0 begins, in elements
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_BASELINE_SCORE_CUH_
