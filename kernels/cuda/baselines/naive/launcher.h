#ifndef ATTND_KERNELS_CUDA_BASELINES_NAIVE_LAUNCHER_H_
#define ATTND_KERNELS_CUDA_BASELINES_NAIVE_LAUNCHER_H_

// What forward and backward of naive attention do with a stream.

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/cuda/baselines/naive/cublas.h"
#include "kernels/cuda/baselines/naive/product.h"
#include "kernels/cuda/baselines/naive/steps.h"
#include "kernels/cuda/device/workspace.h"
#include "kernels/cuda/launch/descriptor.h"
#include "kernels/cuda/launch/enqueue.h"
#include "kernels/cuda/launch/wanted.h"

namespace attnd::cuda {

// The workspace's cuBLAS; null if it is not wanted or this machine has none.
absl::StatusOr<Cublas*> FindCublas(bool wanted, Workspace& workspace);

// One problem's launches. None is made any more once one has failed or the
// problem is cancelled.
class NaiveLauncher {
 public:
  // `cublas` may be null. All must outlive this.
  NaiveLauncher(const Problem& problem, Cublas* cublas, cudaStream_t stream,
                LaunchCounts& counts)
      : problem_(problem), cublas_(cublas), stream_(stream), counts_(counts) {}

  // Calls launch(stream), which gives a cudaError_t.
  template <class Launch>
  void Step(Launch launch) {
    if (!status_.ok() || Cancelled(problem_)) return;
    Count(launch(stream_));
  }

  // By cuBLAS, if there is one and it takes the product, or a plain kernel.
  void Multiply(const Product& product);

  // Writes what is still to be written of a result, if anything is.
  void Finish(const LaunchParams& params, const UnfinishedTokens& unfinished);

  // OK of a problem that was cancelled, too.
  const absl::Status& status() const { return status_; }

 private:
  void Count(cudaError_t error);

  const Problem& problem_;
  Cublas* const cublas_;
  const cudaStream_t stream_;
  LaunchCounts& counts_;
  absl::Status status_;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_NAIVE_LAUNCHER_H_
