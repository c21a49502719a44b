#include "tests/kernels/cuda/fake_launch.h"

#include <cuda_runtime_api.h>

#include <utility>

namespace attnd::testing {
namespace {

std::vector<FakeLaunch>& Launches() {
  static auto* const launches = new std::vector<FakeLaunch>;
  return *launches;
}

}  // namespace

std::vector<FakeLaunch> TakeFakeLaunches() {
  return std::exchange(Launches(), {});
}

}  // namespace attnd::testing

extern "C" {

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config,
                                const void* kernel, void**) {
  attnd::testing::Launches().push_back({kernel, config->gridDim.x});
  return cudaSuccess;
}

}  // extern "C"
