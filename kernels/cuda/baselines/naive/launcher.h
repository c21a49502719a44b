#ifndef ATTND_KERNELS_CUDA_BASELINES_NAIVE_LAUNCHER_H_
#define ATTND_KERNELS_CUDA_BASELINES_NAIVE_LAUNCHER_H_

// What forward and backward of naive attention do with a stream.

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/cuda/baselines/baseline_rest.h"
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

// One problem's launches, or a part of them: who makes them asks for all, and
// those outside of the part are left out. None is made any more once one has
// failed or the problem is cancelled.
class NaiveLauncher {
 public:
  // `cublas` may be null. All must outlive this.
  NaiveLauncher(const Problem& problem, Cublas* cublas, cudaStream_t stream,
                LaunchPart& part, LaunchCounts& counts);

  // Calls launch(stream), which gives a cudaError_t.
  template <class Launch>
  void Step(Launch launch) {
    LaunchIfNext(step_micros_, launch);
  }

  // By cuBLAS, if there is one and it takes the product, or a plain kernel.
  void Multiply(const Product& product);

  // Writes what is still to be written of a result, if anything is.
  void Finish(const LaunchParams& params, const UnfinishedTokens& unfinished);

  // All have been asked for. OK of a problem that was cancelled, too.
  absl::Status End();

 private:
  template <class Launch>
  void LaunchIfNext(double micros, Launch launch) {
    if (IsNext(micros)) Count(launch(stream_));
  }
  // Whether the launch that is asked for is to be made; it then is.
  bool IsNext(double micros);
  void Count(cudaError_t error);

  const Problem& problem_;
  Cublas* const cublas_;
  const cudaStream_t stream_;
  const double step_micros_;  // what a step takes that reads a matrix
  LaunchPart& part_;
  LaunchCounts& counts_;
  int asked_ = 0;  // launches
  absl::Status status_;
};

// About what all launches of a problem take that reads and writes `matrices` of
// its matrices and multiplies its tensors `products` times, in microseconds of
// one multiprocessor.
double NaiveMicros(const Problem& problem, int matrices, int products);

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_NAIVE_LAUNCHER_H_
