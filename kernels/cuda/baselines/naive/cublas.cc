#include "kernels/cuda/baselines/naive/cublas.h"

#include <dlfcn.h>
#include <library_types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// What cublas_api.h declares, as far as it is used here: the same in versions
// 11 to 13.
using Handle = void*;
constexpr int kSuccess = 0;
constexpr int kOpN = 0, kOpT = 1;
constexpr int kCompute32F = 68, kCompute32FPedantic = 69;
constexpr int kGemmDefault = -1;
// Parts of a sum are added in f32 even where C is narrower.
constexpr int kMathMode = 16;

struct Api {
  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*set_stream)(Handle, cudaStream_t) = nullptr;
  int (*set_workspace)(Handle, void*, size_t) = nullptr;
  int (*set_math_mode)(Handle, int) = nullptr;
  int (*gemm)(Handle, int op_a, int op_b, int m, int n, int k,
              const void* alpha, const void* a, cudaDataType a_type, int lda,
              long long stride_a, const void* b, cudaDataType b_type, int ldb,
              long long stride_b, const void* beta, void* c,
              cudaDataType c_type, int ldc, long long stride_c, int count,
              int compute_type, int algo) = nullptr;
};

// As much as NVIDIA advises for Hopper, the most of all.
constexpr int64_t kMemoryBytes = int64_t{32} << 20;

template <class Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Null if there is no library, or one that lacks something.
const Api* Load() {
  static const Api* const api = []() -> const Api* {
    void* library = nullptr;
    for (const char* name :
         {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"}) {
      if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) return nullptr;
    static Api found;
    const bool complete =
        Find(library, "cublasCreate_v2", found.create) &&
        Find(library, "cublasDestroy_v2", found.destroy) &&
        Find(library, "cublasSetStream_v2", found.set_stream) &&
        Find(library, "cublasSetWorkspace_v2", found.set_workspace) &&
        Find(library, "cublasSetMathMode", found.set_math_mode) &&
        Find(library, "cublasGemmStridedBatchedEx", found.gemm);
    return complete ? &found : nullptr;
  }();
  return api;
}

// What is left behind of an error that does not stick is cleared.
std::string Describe(int error, const char* what) {
  (void)cudaGetLastError();
  return absl::StrCat(what, ": cuBLAS status ", error);
}

// Of making a handle. The library has no one code for want of memory, and a
// device that is broken will say so to whatever is launched next.
absl::Status ToCreationStatus(int error, const char* what) {
  if (error == kSuccess) return absl::OkStatus();
  return absl::ResourceExhaustedError(Describe(error, what));
}

cudaDataType ToCudaType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
  }
  return CUDA_R_32F;
}

}  // namespace

bool Cublas::IsPresent() { return Load() != nullptr; }

absl::StatusOr<Cublas*> Cublas::Of(Workspace& workspace) {
  std::shared_ptr<void>& kept = workspace.library();
  if (kept == nullptr) {
    std::shared_ptr<Cublas> cublas(new Cublas(workspace.stream()));
    if (absl::Status status = cublas->Create(); !status.ok()) return status;
    kept = std::move(cublas);
  }
  return static_cast<Cublas*>(kept.get());
}

// The order matters: choosing a stream takes away the workspace.
absl::Status Cublas::Create() {
  const Api& api = *Load();
  absl::Status status =
      ToStatus(cudaMalloc(&memory_, kMemoryBytes), "memory for cuBLAS");
  if (status.ok())
    status = ToCreationStatus(api.create(&handle_), "cublasCreate");
  if (status.ok())
    status =
        ToCreationStatus(api.set_stream(handle_, stream_), "cublasSetStream");
  if (status.ok())
    status = ToCreationStatus(api.set_workspace(handle_, memory_, kMemoryBytes),
                              "cublasSetWorkspace");
  if (status.ok())
    status = ToCreationStatus(api.set_math_mode(handle_, kMathMode),
                              "cublasSetMathMode");
  return status;
}

Cublas::~Cublas() {
  if (handle_ != nullptr) Load()->destroy(handle_);
  cudaFree(memory_);
}

bool Cublas::Takes(const Product& p) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  const int64_t a_columns = p.a_transposed ? p.m : p.k;
  const int64_t b_columns = p.b_transposed ? p.k : p.n;
  return std::max({p.m, p.n, p.k, p.lda, p.ldb, p.ldc}) <= kMost &&
         p.lda >= a_columns && p.ldb >= b_columns && p.ldc >= p.n &&
         Fold(p).repeats[2].count <= kMost &&
         // The library may multiply a factor by the scale, not the sum, which a
         // scale far from 1 takes out of f32's range.
         std::abs(p.scale) >= 0x1p-10f && std::abs(p.scale) <= 0x1p10f;
}

// cuBLAS has columns where we have rows: it is asked for C^T = B^T A^T.
//
// compute-sanitizer's racecheck reports one word of shared memory of a kernel
// of the library's (nvjet_sm90_..._coopA, version 13; products 4096 wide): the
// last lanes of all warps that multiply read it, in both blocks of a cluster,
// and the first thread after them writes it. Its values count up from the
// number of clusters, so it is the next tile's number, handed from one thread
// to the rest. mbarriers order such hand-overs; that they do here is presumed,
// since the code is closed.
absl::Status Cublas::Enqueue(const Product& product, int& launches) {
  const Product p = Fold(product);
  const float beta = p.accumulate ? 1.0f : 0.0f;
  const cudaDataType type = ToCudaType(p.dtype);
  const int compute =
      p.dtype == DType::kF32 ? kCompute32FPedantic : kCompute32F;
  const Repeat& inner = p.repeats[2];
  for (int64_t i = 0; i < p.repeats[0].count; ++i) {
    for (int64_t j = 0; j < p.repeats[1].count; ++j) {
      const auto at = [&](int64_t Repeat::*stride) {
        return i * p.repeats[0].*stride + j * p.repeats[1].*stride;
      };
      const int error = Load()->gemm(
          handle_, p.b_transposed ? kOpT : kOpN, p.a_transposed ? kOpT : kOpN,
          static_cast<int>(p.n), static_cast<int>(p.m), static_cast<int>(p.k),
          &p.scale, Advance(p.b, p.dtype, at(&Repeat::b)), type,
          static_cast<int>(p.ldb), inner.b,
          Advance(p.a, p.dtype, at(&Repeat::a)), type, static_cast<int>(p.lda),
          inner.a, &beta, Advance(p.c, p.c_dtype, at(&Repeat::c)),
          ToCudaType(p.c_dtype), static_cast<int>(p.ldc), inner.c,
          static_cast<int>(inner.count), compute, kGemmDefault);
      if (error != kSuccess)
        return absl::InternalError(
            Describe(error, "cublasGemmStridedBatchedEx"));
      ++launches;
    }
  }
  return absl::OkStatus();
}

}  // namespace attnd::cuda
