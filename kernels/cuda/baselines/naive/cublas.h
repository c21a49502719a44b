#ifndef ATTND_KERNELS_CUDA_BASELINES_NAIVE_CUBLAS_H_
#define ATTND_KERNELS_CUDA_BASELINES_NAIVE_CUBLAS_H_

// NVIDIA's products of matrices, where the machine has them: the library is
// looked for at run time and linked to nothing.

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/baselines/naive/product.h"
#include "kernels/cuda/device/workspace.h"

namespace attnd::cuda {

// cuBLAS on one CUDA stream, with device memory of its own. For one thread at a
// time, with the stream's device current.
class Cublas {
 public:
  // Whether this machine has the library. Thread-safe.
  static bool IsPresent();

  // The workspace's, which keeps it; made by the first call, which must not be
  // captured in a graph. RESOURCE_EXHAUSTED when it cannot be made now: mostly
  // for want of memory. IsPresent() must be true.
  static absl::StatusOr<Cublas*> Of(Workspace& workspace);

  // Whether the library's interface can express the product, and its result
  // would be as right as our own.
  static bool Takes(const Product& product);

  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  // Enqueues a product that it takes; adds the number of calls to `launches`.
  // f32 is multiplied in f32, not in TF32. INTERNAL: the library refused.
  absl::Status Enqueue(const Product& product, int& launches);

 private:
  explicit Cublas(cudaStream_t stream) : stream_(stream) {}
  absl::Status Create();

  const cudaStream_t stream_;
  void* handle_ = nullptr;
  void* memory_ = nullptr;
};

}  // namespace attnd::cuda

#endif  // ATTND_KERNELS_CUDA_BASELINES_NAIVE_CUBLAS_H_
