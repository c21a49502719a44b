#include "kernels/cuda/baselines/naive/launcher.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/baselines/naive/scratch.h"
#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// FLOPs that a multiprocessor does in a microsecond: cuBLAS in f32 has 50
// TFLOP/s on 132 of them and 18 on an A100's 108; our own products, in f32 too,
// reach about half of that.
constexpr double kF32Flops = 0.2e6, kTiledFlops = 0.1e6, k16BitFlops = 2e6;
double CublasFlops(DType dtype) {
  return dtype == DType::kF32 ? kF32Flops : k16BitFlops;
}

// Bytes that it reads or writes in a microsecond: 14 KB on an A100, 25 on an
// H100.
constexpr double kBytesPerMicro = 2e4;

// A step reads a matrix of f32 and writes one.
double StepMicros(const Problem& p) {
  return MatrixElements(p) * 8 / kBytesPerMicro;
}

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

NaiveLauncher::NaiveLauncher(const Problem& problem, Cublas* cublas,
                             cudaStream_t stream, LaunchPart& part,
                             LaunchCounts& counts)
    : problem_(problem),
      cublas_(cublas),
      stream_(stream),
      step_micros_(StepMicros(problem)),
      part_(part),
      counts_(counts) {
  part.end = part.first;
}

void NaiveLauncher::Multiply(const Product& product) {
  const double flops = 2.0 * static_cast<double>(product.repeated()) *
                       static_cast<double>(product.m) *
                       static_cast<double>(product.n) *
                       static_cast<double>(product.k);
  if (cublas_ == nullptr || !Cublas::Takes(product)) {
    return LaunchIfNext(flops / kTiledFlops, [&](cudaStream_t stream) {
      return LaunchTiledProduct(Fold(product), stream);
    });
  }
  if (!IsNext(flops / CublasFlops(product.dtype))) return;
  status_ = cublas_->Enqueue(product, counts_.kernels);
}

bool NaiveLauncher::IsNext(double micros) {
  const int number = asked_++;
  if (number < part_.end || part_.micros <= 0) return false;
  if (!status_.ok() || Cancelled(problem_)) return false;
  part_.micros -= micros;
  part_.end = asked_;
  return true;
}

absl::Status NaiveLauncher::End() {
  part_.is_last = part_.end == asked_ || Cancelled(problem_);
  return status_;
}

void NaiveLauncher::Finish(const LaunchParams& params,
                           const UnfinishedTokens& unfinished) {
  if (!NeedsFinish(problem_, unfinished)) return;
  Step([&](cudaStream_t stream) {
    return LaunchFinish(params, unfinished, problem_.batch, stream);
  });
}

double NaiveMicros(const Problem& p, int matrices, int products) {
  const double flops =
      2.0 * MatrixElements(p) * std::max(p.head_dim, p.value_dim);
  return matrices * StepMicros(p) + products * flops / CublasFlops(p.dtype());
}

void NaiveLauncher::Count(cudaError_t error) {
  ++counts_.kernels;
  status_ = ToStatus(error, "a step of naive attention");
}

}  // namespace attnd::cuda
