#include "kernels/cuda/baselines/naive/launcher.h"

#include <cstdint>

#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// Whether products leave something to be written.
bool NeedsFinish(const Problem& p, const UnfinishedTokens& x) {
  if (x.sums != nullptr) return true;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t len = x.segment < 0 ? QLen(p, b) : KvLen(p.kv[x.segment], b);
    if (len < x.tokens || QLen(p, b) == 0 || KvLen(p, b) == 0) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<Cublas*> FindCublas(bool wanted, Workspace& workspace) {
  if (!wanted || !Cublas::IsPresent()) return nullptr;
  return Cublas::Of(workspace);
}

void NaiveLauncher::Multiply(const Product& product) {
  if (cublas_ == nullptr || !Cublas::Takes(product)) {
    return Step([&](cudaStream_t stream) {
      return LaunchTiledProduct(Fold(product), stream);
    });
  }
  if (!status_.ok() || Cancelled(problem_)) return;
  status_ = cublas_->Enqueue(product, counts_.kernels);
}

void NaiveLauncher::Finish(const LaunchParams& params,
                           const UnfinishedTokens& unfinished) {
  if (!NeedsFinish(problem_, unfinished)) return;
  Step([&](cudaStream_t stream) {
    return LaunchFinish(params, unfinished, problem_.batch, stream);
  });
}

void NaiveLauncher::Count(cudaError_t error) {
  ++counts_.kernels;
  status_ = ToStatus(error, "a step of naive attention");
}

}  // namespace attnd::cuda
